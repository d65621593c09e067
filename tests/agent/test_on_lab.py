"""Transactions on real hosts: systemd restarts, timers, boots, and people who interfere."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import FleetError
from fleetctl.host.agent_client import Agent, new_id
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.lab import Lab
from fleetctl.transaction.failure import Drifted, LeaseTaken, NotBack, StepFailed
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.transaction.snapshot import PathQuery, Query
from fleetctl.transaction.step import ReloadUnits, RestartUnit, Step, WriteFile

pytestmark = pytest.mark.lab

UNIT = "sglang-dsv4-decode.service"
LEASE_S = 3.0
GRACE_S = 5.0


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Host:
    """A lab host and its agent, over a connection of its own."""

    lab: Lab
    name: str
    agent: Agent

    @property
    def tree(self) -> str:
        return self.lab.host(self.name).tree

    @property
    def script(self) -> str:
        return self.lab.host(self.name).serve_script

    @property
    def module(self) -> str:
        return f"{self.tree}/python/serve/dsv4/indexer.py"

    def read(self, path: str) -> bytes:
        return self.agent.transport.get(path)

    def shell(self, text: str) -> str:
        done = self.agent.transport.run(["sh", "-c", text], deadline_s=30)
        return done.stdout.decode()

    def write(self, path: str, content: bytes) -> tuple[Step, dict[str, bytes]]:
        step = WriteFile(path, sha256(content), None, sha256(self.read(path)))
        return step, {sha256(content): content}

    def lease(self, length_s: float = 60.0) -> LeaseRequest:
        return LeaseRequest(new_id(), "run-1", "ann@desk", "hunting", UNIT, length_s)

    def change_module(
        self, *, length_s: float = 60.0, transaction: str = "", lease: LeaseRequest | None = None
    ) -> str:
        """Deploy a changed module and restart the unit; return the transaction."""
        step, contents = self.write(self.module, self.read(self.module) + b"\n# changed\n")
        name = transaction or new_id()
        restart = RestartUnit(UNIT, 0.3, 20)
        held = lease or self.lease(length_s)
        self.agent.apply(held, name, [step, ReloadUnits(), restart], contents)
        return name

    def change_module_and_vanish(self) -> str:
        """Deploy as a controller that renews its lease, and is gone afterwards."""
        with self.renewed_lease() as lease:
            return self.change_module(lease=lease)

    @contextlib.contextmanager
    def renewed_lease(self) -> Iterator[LeaseRequest]:
        """Hold a short lease that is renewed as long as the block lasts."""
        lease, is_over = self.lease(LEASE_S), threading.Event()
        self.agent.acquire(lease)

        def renew() -> None:
            while not is_over.wait(LEASE_S / 8):
                self.agent.renew(lease.id, length_s=LEASE_S)

        with ThreadPoolExecutor(1) as pool:
            renewing = pool.submit(renew)
            try:
                yield lease
            finally:
                is_over.set()
                renewing.result()

    def look(self) -> dict[str, object]:
        """Return what must be as before: files, and how the unit is."""
        queries = tuple(PathQuery(path) for path in (self.module, self.script))
        observed = self.agent.observe(Query(queries, (UNIT,)))
        properties = observed.units[0].properties
        unit = {name: properties.get(name) for name in ("ActiveState", "SubState", "UnitFileState")}
        return {"files": observed.paths, "unit": unit}

    def wait(self, before: dict[str, object], *, within_s: float) -> None:
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s and (self.look() != before or self.held()):
            time.sleep(0.1)
        assert self.look() == before
        assert not self.held()

    def held(self) -> bool:
        status = self.agent.status()
        return bool(status.leases or status.transactions)


def connect_host(lab: Lab, name: str) -> Host:
    record = lab.host(name)
    endpoint = Endpoint(
        name=name,
        address=record.address,
        user=lab_user(lab),
        port=record.port,
        identity_files=(lab.paths.identity,),
        known_hosts_files=(lab.paths.known_hosts,),
    )
    transport = connect(
        endpoint, backend=Backend.PARAMIKO, gate=HandshakeGate(), clock=SystemClock()
    )
    return Host(lab, name, Agent(transport))


def lab_user(lab: Lab) -> str:
    with lab.paths.inventory.open("rb") as file:
        return str(tomllib.load(file)["defaults"]["user"])


@pytest.fixture
def host_of_each_kind(lab_of_each_kind) -> Iterator[Host]:
    """lab-1 of each kind of lab; at the end it must be as it was, with nothing left behind."""
    yield from _borrowed(connect_host(lab_of_each_kind.lab, "lab-1"))


@pytest.fixture
def host(lab_hosts) -> Iterator[Host]:
    """lab-1 of the best kind; at the end it must be as it was, with nothing left behind."""
    yield from _borrowed(connect_host(lab_hosts.lab, "lab-1"))


def _borrowed(host: Host) -> Iterator[Host]:
    before = host.look()
    yield host
    assert host.look() == before
    assert not host.held()
    host.agent.forget()
    host.agent.transport.close()


@pytest.fixture
def systemd_host(host) -> Host:
    """A host with a systemd of its own."""
    if not host.shell("ls -d /run/systemd/system 2>/dev/null").strip():
        pytest.skip("this machine permits no hosts with systemd")
    return host


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


def test_nobody_renewing_restores_the_host_and_its_service_in_time(host_of_each_kind):
    host = host_of_each_kind
    before = host.look()

    host.change_module_and_vanish()
    assert host.look() != before

    host.wait(before, within_s=LEASE_S + 3 * GRACE_S)  # the campaign measures, with one GRACE_S


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
        host.agent.apply(host.lease(), new_id(), [step, RestartUnit(UNIT, 1.0, 20)], contents)

    assert time.monotonic() - started_s < 15
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

    host.wait(before, within_s=LEASE_S + 3 * GRACE_S)  # the campaign measures, with one GRACE_S
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
    host.wait(before, within_s=GRACE_S + 5)
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

    until_s = time.monotonic() + 30
    while host.shell("systemctl list-units --all --no-legend 'fleetctl*'"):
        assert time.monotonic() < until_s
    assert host.shell(FOR_BOOT) == host.shell(HALF_WRITTEN) == ""


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


def test_flags_are_read_from_the_processes_and_nothing_else_is_sent(host):
    report = host.agent.unit(UNIT, flags=("SGLANG_DSV4_GE_DIFF", "NO_SUCH_FLAG"))

    (flags,) = {process.flags for process in report.processes}
    assert dict(flags).keys() == {"SGLANG_DSV4_GE_DIFF"}
    assert report.main_pid in {process.pid for process in report.processes}
