"""Transactions on real hosts: systemd restarts, services that misbehave, people who interfere."""

from __future__ import annotations

import time

import pytest

from fleetctl.errors import FleetError
from fleetctl.host.agent_client import new_id
from fleetctl.transaction.failure import Drifted, LeaseTaken, StepFailed
from fleetctl.transaction.snapshot import PathQuery, Query
from fleetctl.transaction.step import RestartUnit, WriteFile
from tests.agent.lab_host import UNIT, sha256

pytestmark = pytest.mark.lab


def test_a_change_restarts_the_service_on_the_new_file_and_back_on_the_old(host_of_each_kind):
    host = host_of_each_kind
    before, marker = host.look(), sha256(host.read(host.module))[:12]
    transaction = host.change_module()

    changed = host.agent.unit(UNIT, log_lines=10)
    restored = host.agent.restore(transaction=transaction)
    back = host.agent.unit(UNIT, log_lines=10)

    assert changed.active_state == back.active_state == "active"
    assert not any(marker in line for line in changed.log_lines)
    assert any(marker in line for line in back.log_lines)
    assert [restart.unit for restart in restored.restarts] == [UNIT]
    assert host.look() == before


def test_a_service_started_by_the_agent_still_ends_when_it_is_told_to(host_of_each_kind):
    host = host_of_each_kind
    transaction = host.change_module()

    processes = host.agent.unit(UNIT).processes
    statuses = [host.shell(f"grep SigIgn /proc/{process.pid}/status") for process in processes]
    ignored = [int(text.split()[1], 16) & (1 << 14) for text in statuses]

    host.agent.restore(transaction=transaction)
    assert processes
    assert not any(ignored), "SIGTERM is ignored"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"#!/no/such/interpreter\n", "missing"),
        (b"#!/bin/bash\necho boom >&2\nexit 3\n", "exit status 3"),
    ],
    ids=["missing binary", "crash loop"],
)
def test_a_service_that_only_seems_to_start_is_a_failure_with_its_log(systemd_host, content, word):
    host = systemd_host
    step, contents = host.write(host.script, content)
    started_s = time.monotonic()

    with pytest.raises(StepFailed, match=word) as failed:
        host.agent.apply(host.lease(), new_id(), [step, RestartUnit(UNIT, 1.0, 60)], contents)

    assert time.monotonic() - started_s < 45  # it is not waited for until the deadline
    assert failed.value.log_lines
    assert failed.value.restored.restarts[0].unit == UNIT


STUBBORN = b"#!/bin/bash\ntrap '' TERM\nwhile :; do sleep 0.1; done\n"


def test_a_new_service_that_ignores_sigterm_is_ended_by_the_restore(systemd_host):
    host = systemd_host
    before, transaction = host.look(), new_id()
    step, contents = host.write(host.script, STUBBORN)
    host.agent.apply(host.lease(), transaction, [step, RestartUnit(UNIT, 0.3, 1.0)], contents)

    host.agent.restore(transaction=transaction)

    assert host.look() == before


def test_an_old_service_that_does_not_stop_is_named_and_the_change_undone(systemd_host):
    host = systemd_host
    script = host.script
    host.shell(f"cp -a {script} /root/kept; systemctl stop {UNIT}")
    host.agent.transport.put(STUBBORN, script, mode=0o755)
    host.shell(f"systemctl start {UNIT}; sleep 0.5")
    before = host.look()
    try:
        step, contents = host.write(host.module, b"NAME = 'never runs'\n")
        with pytest.raises(StepFailed, match="did not stop within 1 s; processes left"):
            host.agent.apply(host.lease(), new_id(), [step, RestartUnit(UNIT, 0.3, 1.0)], contents)
        assert host.look() == before
    finally:
        host.shell(f"cp -a /root/kept {script}; rm /root/kept; systemctl kill -s KILL {UNIT}")
        host.shell(f"systemctl restart {UNIT}; sleep 0.5")


def test_a_masked_unit_is_refused_before_anything_is_changed(systemd_host):
    host = systemd_host
    kept = "/root/kept.service"
    file = f"/etc/systemd/system/{UNIT}"
    host.shell(f"cp -a {file} {kept}; rm {file}; systemctl mask {UNIT}")
    try:
        with pytest.raises(FleetError, match="masked"):
            host.change_module()
    finally:
        host.shell(f"systemctl unmask {UNIT}; mv {kept} {file}; systemctl enable {UNIT}")


def test_a_second_controller_is_told_who_holds_the_unit(host):
    transaction = host.change_module()

    with pytest.raises(LeaseTaken, match=f"{UNIT} is held by ann@desk"):
        host.change_module()

    host.agent.restore(transaction=transaction)


def test_drift_is_refused_and_leaves_no_lease(host):
    step = WriteFile(host.module, sha256(b"x"), None, sha256(b"not what is there"))

    with pytest.raises(Drifted, match="expected sha256"):
        host.agent.apply(host.lease(), new_id(), [step], {sha256(b"x"): b"x"})

    assert not host.held()


def test_everything_about_a_host_is_one_round_trip(host):
    observed = host.agent.observe(
        Query((PathQuery(host.script, content=True), PathQuery("/nowhere")), (UNIT,), ("python3",))
    )

    script, nowhere = observed.paths
    (unit,) = observed.units
    assert script.content == host.read(host.script)
    assert script.sha256 == sha256(script.content)
    assert nowhere.kind == "absent"
    assert unit.properties["ActiveState"] == "active"
    assert b"ExecStart" in unit.sources[0].content
    assert observed.facts.boot_id
    assert observed.facts.interpreters[0][1].startswith("3.")


def test_every_source_of_a_units_environment_comes_along(systemd_host):
    """Files that a pattern names, and what the manager gives every service."""
    unit = "told.service"
    lines = "[Service]\\nEnvironmentFile=/etc/told/*.env\\nExecStart=/bin/true\\n"
    systemd_host.shell(
        f"printf '{lines}' > /etc/systemd/system/{unit}; mkdir /etc/told;"
        "for n in 1 2; do echo A=$n > /etc/told/$n.env; done;"
        "systemctl daemon-reload; systemctl set-environment TOLD=by-the-manager"
    )
    try:
        (state,) = systemd_host.agent.observe(Query((), (unit,))).units
    finally:
        systemd_host.shell(
            f"rm -r /etc/systemd/system/{unit} /etc/told; systemctl daemon-reload;"
            "systemctl unset-environment TOLD"
        )

    found = {source.path: source.content for source in state.sources}
    assert (found["/etc/told/1.env"], found["/etc/told/2.env"]) == (b"A=1\n", b"A=2\n")
    assert "TOLD=by-the-manager" in state.properties["ManagerEnvironment"].splitlines()


def test_flags_are_read_from_the_processes_and_nothing_else_is_sent(host):
    report = host.agent.unit(UNIT, flags=("SGLANG_DSV4_GE_DIFF", "NO_SUCH_FLAG"))

    (flags,) = {process.flags for process in report.processes}
    assert dict(flags).keys() == {"SGLANG_DSV4_GE_DIFF"}
    assert report.main_pid in {process.pid for process in report.processes}
