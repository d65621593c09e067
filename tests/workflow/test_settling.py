"""Who goes on with a run restores what a dead controller left, never what a living one holds."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from fleetctl.errors import LeaseHeld
from fleetctl.store.run_folder import RunFolder
from fleetctl.transaction.lease import Lease, LeaseRequest, grant
from fleetctl.transaction.outcome import Granted
from fleetctl.transaction.snapshot import HeldLease, HeldTransaction, Status
from fleetctl.workflow import experiment, matrix_run
from fleetctl.workflow.lease_keeper import LeaseKeeper
from fleetctl.workflow.settling import lease_mark, settle_host

RUN = "20261129-184230-eager-3f9a"


@dataclass
class Agent:
    """A host that grants leases, one change under each."""

    left_s: float = 30.0
    leases: list[Lease] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def acquire(self, request: LeaseRequest) -> Granted:
        self.leases.append(grant(request, 0.0))
        self.changes.append(request.run_id)
        return Granted(self.leases[-1], "watcher")

    def status(self) -> Status:
        return Status(
            tuple(HeldLease(lease, self.left_s, "watcher", ("t",)) for lease in self.leases),
            tuple(
                HeldTransaction("t", run, "ann@desk", "p", "u", "applied", 0.0, (), ())
                for run in self.changes
            ),
        )

    def restore(self, *, run_id: str) -> None:
        self.changes = [run for run in self.changes if run != run_id]

    def unlock(self, lease_id: str, *, by: str) -> None:
        assert by == "ann@desk"
        self.release(lease_id)

    def release(self, lease_id: str) -> None:
        self.leases = [lease for lease in self.leases if lease.id != lease_id]


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "a", RUN, {"kind": "matrix"})


@pytest.fixture
def host():
    """A host that a controller of the folder died on."""
    transport = SimpleNamespace(times_lost=0)
    return SimpleNamespace(
        name="h1", agent=Agent(), transport=transport, host=SimpleNamespace(unit="u.service")
    )


def held_from(folder, host) -> LeaseKeeper:
    keeper = LeaseKeeper(
        host,
        run_id=folder.run_id,
        holder="ann@desk",
        purpose="p",
        length_s=60.0,
        mark=lease_mark(folder),
    )
    host.agent.acquire(keeper.request)
    return keeper


def settle(folder, host):
    talk = SimpleNamespace(say=lambda _line: None)
    settle_host(SimpleNamespace(talk=talk, holder="ann@desk"), folder, host)


def copied(folder, tmp_path):
    return RunFolder(shutil.copytree(folder.path, tmp_path / "b" / RUN))


def test_what_a_dead_controller_of_the_very_folder_left_goes_back_at_once(folder, host):
    held_from(folder, host)

    settle(folder, host)

    assert (host.agent.leases, host.agent.changes) == ([], [])


def test_a_run_that_was_moved_as_a_whole_is_still_the_same(folder, host, tmp_path):
    held_from(folder, host)
    (tmp_path / "c").mkdir()

    settle(RunFolder(folder.path.rename(tmp_path / "c" / RUN)), host)

    assert host.agent.leases == []


def test_a_copy_of_a_run_never_ends_what_the_run_itself_still_holds(folder, host, tmp_path):
    keeper = held_from(folder, host)

    with pytest.raises(LeaseHeld, match="still holds") as refused:
        settle(copied(folder, tmp_path), host)

    assert keeper.request.id in refused.value.next_step
    assert (len(host.agent.leases), host.agent.changes) == (1, [RUN])


def test_the_run_itself_never_ends_what_a_copy_of_it_still_holds(folder, host, tmp_path):
    held_from(copied(folder, tmp_path), host)

    with pytest.raises(LeaseHeld):
        settle(folder, host)

    assert len(host.agent.leases) == 1


def test_the_same_folder_on_another_machine_is_another_place(folder, host, monkeypatch):
    held_from(folder, host)
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")

    with pytest.raises(LeaseHeld):
        settle(folder, host)


def test_a_copy_goes_on_once_the_lease_has_expired(folder, host, tmp_path):
    held_from(folder, host)
    host.agent.left_s = -1.0

    settle(copied(folder, tmp_path), host)

    assert (host.agent.leases, host.agent.changes) == ([], [])


def test_a_lease_taken_anew_tells_its_folder_too(folder, host):
    keeper = held_from(folder, host)
    first = keeper.request.id

    with keeper:
        anew = keeper.request.id

    assert anew != first
    assert anew.endswith(lease_mark(folder))


def test_runs_matrices_and_searches_share_the_one_rule():
    assert experiment.settle_host is matrix_run.settle_host is settle_host
