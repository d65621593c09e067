"""Units around the one that is restarted: running, stopped and failed ones end as they were."""

from __future__ import annotations

import dataclasses

import pytest

from fleetctl.errors import FleetError
from fleetctl.host.agent_client import new_id
from fleetctl.transaction.failure import LeaseTaken
from fleetctl.transaction.step import ReloadUnits, RestartUnit
from tests.agent.lab_host import UNIT

pytestmark = pytest.mark.lab

FRAGMENT = f"/etc/systemd/system/{UNIT}"
FOLDER = "/run/systemd/system"
RESTART = RestartUnit(UNIT, 0.2, 20)
# one that requires the service, one that is part of that one, one that is bound to it and stopped
AROUND = {
    "router": f"Requires={UNIT}\nAfter={UNIT}",
    "exporter": "PartOf=router.service",
    "spare": f"BindsTo={UNIT}",
}
SLEEPS = "[Service]\nExecStart=/bin/sleep 100000\n"
EXITS_WITH_3 = b"#!/bin/bash\ntrap 'exit 3' TERM\nwhile :; do sleep 0.05; done\n"


@pytest.fixture
def around(systemd_host):
    """Units around the service of lab-1; a function returns how each of them is."""
    host = systemd_host
    for name, text in AROUND.items():
        host.shell(f"printf '[Unit]\n{text}\n{SLEEPS}' >{FOLDER}/{name}.service")
    host.shell("systemctl daemon-reload; systemctl start router exporter")
    units = " ".join((UNIT, *AROUND))
    yield lambda: host.shell(f"systemctl show -P ActiveState -P SubState -P Result {units}")
    host.shell(f"systemctl stop {' '.join(AROUND)}; cd {FOLDER}")
    host.shell(f"cd {FOLDER}; rm -f {' '.join(f'{name}.service' for name in AROUND)}")
    host.shell(f"systemctl daemon-reload; systemctl start {UNIT}")


def test_what_a_stop_takes_along_runs_again_in_both_arms_and_nothing_else(systemd_host, around):
    host, before = systemd_host, around()

    transaction = host.change_module()
    during = around()
    host.agent.restore(transaction=transaction)

    assert during == before
    assert around() == before


def test_what_comes_up_no_more_fails_the_change_and_is_a_problem_of_the_way_back(
    systemd_host, around
):
    host, before = systemd_host, around()
    broken = f"{FOLDER}/exporter.service.d"
    host.shell(f"mkdir {broken}; printf '[Service]\nExecStartPre=/bin/false\n' >{broken}/a.conf")
    host.shell("systemctl daemon-reload")
    try:
        with pytest.raises(FleetError) as failed:
            host.change_module()
        assert "exporter.service ran before" in failed.value.why
        assert host.agent.status().transactions[0].state == "reverting"
    finally:
        host.shell(f"rm -r {broken}; systemctl daemon-reload")
    host.agent.release(host.agent.status().leases[0].lease.id)
    assert around() == before


@pytest.mark.parametrize("by_hand", ["true", f"systemctl stop {UNIT}"], ids=["by us", "by hand"])
def test_a_unit_that_did_not_run_does_not_run_and_has_not_failed(systemd_host, around, by_hand):
    host = systemd_host
    host.shell(f"systemctl stop {UNIT}")
    before = around()
    lease, first, second = host.lease(), new_id(), new_id()
    module, contents = host.write(host.module, host.read(host.module) + b"# first arm\n")
    step, more = host.write(host.script, EXITS_WITH_3)

    host.agent.apply(lease, first, [module, RESTART], contents)
    host.agent.apply(lease, second, [step, RESTART], more, replaces=first)
    host.shell(by_hand)
    host.agent.release(lease.id)

    assert around() == before


def test_an_alias_of_a_unit_is_the_same_unit(systemd_host):
    host, lease = systemd_host, systemd_host.lease()
    host.shell(f"ln -s {FRAGMENT} {FOLDER}/decode.service; systemctl daemon-reload")
    host.agent.acquire(lease)
    try:
        with pytest.raises(LeaseTaken, match=UNIT):
            host.agent.acquire(dataclasses.replace(host.lease(), unit="decode.service"))
    finally:
        host.agent.release(lease.id)
        host.shell(f"rm {FOLDER}/decode.service; systemctl daemon-reload")


def test_what_a_start_would_end_is_refused(systemd_host, around):
    host = systemd_host
    host.shell(f"systemctl stop {UNIT}; printf '[Unit]\nConflicts={UNIT}\n{SLEEPS}' >{FOLDER}/x")
    host.shell(f"mv {FOLDER}/x {FOLDER}/spare.service; systemctl daemon-reload")
    host.shell("systemctl start spare")
    before = around()

    with pytest.raises(FleetError, match="cannot change") as refused:
        host.agent.apply(host.lease(), new_id(), [RESTART], {})

    assert "spare.service" in refused.value.why
    assert around() == before


@pytest.mark.parametrize("unit", [UNIT, "router.service"])
def test_an_edit_that_systemd_has_not_read_is_not_read_by_us(systemd_host, around, unit):
    host = systemd_host
    dropin = f"{FOLDER}/{unit}.d"
    host.shell(f"mkdir -p {dropin}; printf '[Service]\nNice=7\n' >{dropin}/theirs.conf")
    try:
        with pytest.raises(FleetError, match="cannot change") as refused:
            host.agent.apply(host.lease(), new_id(), [ReloadUnits(), RESTART], {})
        nice = host.shell(f"systemctl show -P Nice {unit}").strip()
    finally:
        host.shell(f"rm -r {dropin}")
        host.shell("systemctl daemon-reload")
    assert "has not read it yet" in refused.value.why
    assert nice == "0"
