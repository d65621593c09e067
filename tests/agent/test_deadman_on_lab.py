"""Real hosts whose controller is gone: timers, boots and power cuts bring them back."""

from __future__ import annotations

import time

import pytest

from fleetctl.host.agent_client import new_id
from fleetctl.transaction.failure import NotBack
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.transaction.step import RestartUnit
from tests.agent.lab_host import BUSY_S, LEASE_S, UNIT, connect_host, sha256

pytestmark = pytest.mark.lab


def test_nobody_renewing_restores_the_host_and_its_service_in_time(host_of_each_kind):
    host = host_of_each_kind
    before = host.look()

    host.change_module_and_vanish()
    assert host.look() != before

    host.wait(before, within_s=LEASE_S + BUSY_S)


def test_renewing_starts_no_second_timer_and_the_last_one_still_restores(systemd_host):
    host = systemd_host
    before, started_s, timers = host.look(), time.monotonic(), set()
    step, contents = host.write(host.module, host.read(host.module) + b"\n# renewed\n")
    with host.renewed_lease() as lease:
        host.agent.apply(lease, new_id(), [step], contents)
        while len(timers) < 2:  # the first has fired, found the lease renewed, and armed another
            found = host.shell("systemctl list-timers --all --no-legend 'fleetctl*'").splitlines()
            timers |= {line.split()[-2] for line in found}
            assert len([line for line in found if " left " in line]) <= 1
            assert time.monotonic() - started_s < 60
        assert host.look() != before

    host.wait(before, within_s=LEASE_S + BUSY_S)
    assert host.shell("systemctl list-units --all --no-legend 'fleetctl*'") == ""


def test_a_power_cut_is_restored_before_the_service_starts_again(fresh_lab, permitted_kinds):
    lab = fresh_lab(1).lab
    host = connect_host(lab, "lab-1")
    if not host.shell("ls -d /run/systemd/system 2>/dev/null").strip():
        pytest.skip("this machine permits no hosts with systemd")
    before, marker = host.look(), sha256(host.read(host.module))[:12]
    host.change_module(length_s=600)
    host.agent.transport.close()

    lab.kill("lab-1")
    lab.boot("lab-1")

    host = connect_host(lab, "lab-1")
    host.wait(before, within_s=BUSY_S)
    log = host.agent.unit(UNIT, log_lines=50).log_lines
    assert [line for line in log if "[variant] indexer" in line][-1].endswith(marker)
    assert host.shell("ls /etc/systemd/system | grep fleetctl") == ""
    assert host.shell("systemctl list-units --all --plain --no-legend 'fleetctl*'") == ""
    host.agent.transport.close()


FOR_BOOT = "ls /etc/systemd/system /etc/systemd/system/*.wants | grep fleetctl-recover"
HALF_WRITTEN = "ls /var/lib/fleetctl/scratch"


def lose_the_lease(host, lease: LeaseRequest) -> None:
    """Leave what a power cut leaves that came between the boot unit and the lease's record."""
    host.agent.acquire(lease)
    record, temp = f"leases/{lease.id}.json", "scratch/0123456789abcdef0123456789abcdef"
    host.shell(f"systemctl daemon-reload; cd /var/lib/fleetctl; mv {record} {temp}; sync")
    assert lease.id in host.shell(FOR_BOOT)
    assert host.shell(HALF_WRITTEN)


def test_a_boot_unit_without_a_lease_goes_with_the_next_lease(systemd_host):
    host = systemd_host
    lose_the_lease(host, host.lease(600))

    lease = host.lease()
    host.agent.acquire(lease)
    host.agent.release(lease.id)

    assert host.shell(FOR_BOOT) == host.shell(HALF_WRITTEN) == ""
    assert host.shell("systemctl list-units --all --no-legend 'fleetctl-recover*'") == ""
    host.shell("systemctl stop 'fleetctl-expire*.timer'")


def test_a_boot_unit_without_a_lease_goes_at_boot(fresh_lab, permitted_kinds):
    lab = fresh_lab(1).lab
    host = connect_host(lab, "lab-1")
    if not host.shell("ls -d /run/systemd/system 2>/dev/null").strip():
        pytest.skip("this machine permits no hosts with systemd")
    lose_the_lease(host, host.lease(600))
    host.agent.transport.close()

    lab.kill("lab-1")
    lab.boot("lab-1")

    host = connect_host(lab, "lab-1")
    host.shell("systemctl is-system-running --wait")
    assert host.shell(FOR_BOOT) == host.shell(HALF_WRITTEN) == ""
    assert host.shell("systemctl list-units --all --plain --no-legend 'fleetctl*'") == ""
    host.agent.transport.close()


def test_a_timer_without_a_lease_tidies_up(systemd_host):
    host = systemd_host
    lose_the_lease(host, host.lease(1))

    until_s = time.monotonic() + 60
    while host.shell("systemctl list-units --all --no-legend 'fleetctl*'"):
        assert time.monotonic() < until_s
    assert host.shell(FOR_BOOT) == host.shell(HALF_WRITTEN) == ""


def test_a_host_that_cannot_be_restored_says_so_and_goes_on_trying(systemd_host):
    host = systemd_host
    before = host.look()
    transaction = host.change_module_and_vanish()
    host.shell(f"chattr +i {host.module}")
    if "i" not in host.shell(f"lsattr {host.module}").partition(" ")[0]:
        host.agent.restore(transaction=transaction)
        pytest.skip("this file system has no immutable flag")

    with pytest.raises(NotBack, match="Operation not permitted"):
        host.agent.restore(transaction=transaction)
    assert "not permitted" in host.agent.status().transactions[0].problem

    host.shell(f"chattr -i {host.module}")
    host.wait(before, within_s=60.0)


def test_a_kept_change_survives_the_lease_and_a_rollback_needs_only_the_host(host):
    before = host.look()
    lease = host.lease(60.0)
    step, contents = host.write(host.module, host.read(host.module) + b"\n# kept\n")
    host.agent.apply(lease, new_id(), [step, RestartUnit(UNIT, 0.3, 20)], contents)
    fresh = connect_host(host.lab, "lab-1")

    fresh.agent.commit(lease.id)
    # nothing is left that could end it
    assert host.agent.status().leases == ()
    assert host.shell("systemctl list-units --all --no-legend 'fleetctl*'") == ""
    assert host.shell("ls /etc/systemd/system | grep fleetctl") == ""
    assert host.read(host.module).endswith(b"# kept\n")
    assert [held.state for held in host.agent.status().transactions] == ["committed"]

    fresh.agent.restore(run_id="run-1")
    fresh.agent.transport.close()
    assert host.look() == before


def test_a_host_without_a_directory_of_boot_links_has_none_afterwards(systemd_host):
    host, wants = systemd_host, "/etc/systemd/system/multi-user.target.wants"
    host.shell(f"mv {wants} /root/aside")
    look = "ls -la --time-style=+ /etc/systemd/system | tail -n +4"  # without its number of links
    try:
        before = host.shell(look)
        lease = host.lease()
        host.agent.acquire(lease)
        during = host.shell(f"stat -c %a {wants}")
        host.agent.release(lease.id)
        after = host.shell(look)
    finally:
        host.shell(f"rm -rf {wants}; mv /root/aside {wants}")
    assert during == "755\n"
    assert after == before


def test_an_isolate_ends_no_dead_man(systemd_host):
    host = systemd_host
    before = host.look()
    host.change_module_and_vanish()

    host.shell("systemctl isolate --no-block multi-user.target")

    host.wait(before, within_s=LEASE_S + BUSY_S)
