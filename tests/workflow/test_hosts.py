"""Bringing hosts back by a run's name: exactly that run, never a neighbour with the same start."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import ExitCode, HostUnreachable, InputError
from fleetctl.spec.inventory import Host, Inventory
from fleetctl.store.run_folder import RunFolder
from fleetctl.transaction.lease import Lease
from fleetctl.transaction.outcome import Restored
from fleetctl.transaction.snapshot import HeldLease, HeldTransaction, Status
from fleetctl.workflow.hosts import known, rollback, worst_exit_code

FACTS = {
    "address": "10.0.0.1",
    "tree": "/t",
    "python": "/v/bin/python",
    "unit": "u.service",
    "service_url": "http://127.0.0.1:30002",
    "model": "m",
}


class Agent:
    """What a host holds, by run."""

    def __init__(self, *runs: str) -> None:
        self.held = tuple(
            HeldTransaction(f"t-{run}", run, "ann@desk", "p", "u.service", "kept", 0.0, (), ())
            for run in runs
        )
        self.leases: tuple[HeldLease, ...] = ()
        self.restored: list[str] = []

    def status(self) -> Status:
        return Status(self.leases, self.held)

    def observe(self, _query) -> SimpleNamespace:
        return SimpleNamespace(facts=SimpleNamespace(machine_id="m-now"))

    def restore(self, *, transaction: str, force: bool) -> Restored:
        assert not force
        self.restored.append(transaction)
        return Restored((transaction,), (), (), (), (), ())


@pytest.fixture
def fleet(tmp_path):
    """Two hosts, each with a kept change of its own run; `a` holds two."""
    agents = {"a": Agent("20261129-run", "20261129-run-2"), "b": Agent("20261130-run")}
    edges = SimpleNamespace(
        connect=lambda name, _host: SimpleNamespace(host_name=name, close=lambda: None),
        agent=lambda transport, _host: agents[transport.host_name],
        clock=SimpleNamespace(now_s=lambda: 9.0),
        runs=tmp_path,
    )
    inventory = Inventory(hosts={name: Host(**FACTS) for name in agents})
    return SimpleNamespace(
        agents=agents,
        rollback=lambda run: rollback(edges, inventory, list(agents), run_id=run, force=False),
        known=lambda: {a.host: a.value.forgotten for a in known(edges, inventory, list(agents))},
    )


@pytest.mark.parametrize("beginning", ["2", "202611", "20261129", "20261129-ru"])
def test_a_beginning_that_several_runs_share_restores_nothing(fleet, beginning):
    with pytest.raises(InputError, match="is the beginning of"):
        fleet.rollback(beginning)
    assert [agent.restored for agent in fleet.agents.values()] == [[], []]


@pytest.mark.parametrize(
    ("name", "restored"),
    [
        ("20261129-run", [["t-20261129-run"], []]),
        ("20261130", [[], ["t-20261130-run"]]),
    ],
)
def test_a_name_that_is_exact_or_unique_restores_that_run_alone(fleet, name, restored):
    fleet.rollback(name)

    assert [agent.restored for agent in fleet.agents.values()] == restored


def test_everything_goes_back_in_the_order_of_the_status_newest_first(fleet):
    # a host names the newest first; the other way round a file of two changes ends as the older one
    fleet.rollback("")

    assert fleet.agents["a"].restored == ["t-20261129-run", "t-20261129-run-2"]


def test_a_run_that_no_host_holds_is_refused_with_the_runs_that_are_held(fleet):
    with pytest.raises(InputError, match="nothing of run nope is held") as caught:
        fleet.rollback("nope")
    assert caught.value.exit_code == 3
    for run in ("20261129-run", "20261129-run-2", "20261130-run"):
        assert f"`fleetctl rollback {run}`" in caught.value.next_step
    assert caught.value.why == "a holds 20261129-run, 20261129-run-2; b holds 20261130-run"


def test_a_run_is_refused_where_nothing_is_held_but_all_of_nothing_is_not(fleet):
    for agent in fleet.agents.values():
        agent.held = ()
    with pytest.raises(InputError, match="a holds nothing; b holds nothing"):
        fleet.rollback("nope")
    assert [answer.error for answer in fleet.rollback("")] == [None, None]


def test_a_run_that_a_silent_host_may_hold_is_not_said_to_be_held_nowhere(fleet):
    def silent():
        raise HostUnreachable("no answer", why="timeout", next_step="try again")

    fleet.agents["b"].status = silent

    assert worst_exit_code(fleet.rollback("nope")) == ExitCode.FAILED_NOT_RESTORED


def kept(root, run_id, host, machine_id="m-now"):
    folder = RunFolder.create(root, run_id, {"kind": "experiment"})
    folder.write_json(f"hosts/{host}/facts.json", {"facts": {"machine_id": machine_id}})
    folder.record(1.0, "deploying", site=host)
    folder.record(2.0, "kept", host=host)


def test_a_host_that_knows_nothing_of_a_run_is_told_with_what_the_run_remembers(fleet, tmp_path):
    kept(tmp_path, "20261130-run", "b")  # which the host holds, too
    kept(tmp_path, "20261130-lost", "b")
    kept(tmp_path, "20261130-other", "b", machine_id="of another machine with that name")

    found = fleet.known()

    assert found["a"] == ()
    assert [(left.run_id, left.state) for left in found["b"]] == [("20261130-lost", "kept")]


def test_a_rollback_is_remembered_so_that_a_host_without_the_change_is_no_riddle(fleet, tmp_path):
    kept(tmp_path, "20261130-run", "b")
    fleet.rollback("20261130-run")
    fleet.agents["b"].held = ()

    assert fleet.known()["b"] == ()


def test_who_brings_back_a_run_that_changed_nothing_yet_is_not_sent_to_another_s_change(fleet):
    lease = Lease("l-1", "20261201-new", "ann@desk", "p", "u.service", 0.0, 60.0)
    fleet.agents["b"].leases = (HeldLease(lease, 43.0, "systemd", ()),)

    with pytest.raises(InputError, match="20261201-new has changed nothing on b") as caught:
        fleet.rollback("20261201")

    assert "ends in 43 s unless renewed" in caught.value.why
    assert "`fleetctl unlock --id l-1 --host b`" in caught.value.next_step
    assert "20261130" not in caught.value.next_step
