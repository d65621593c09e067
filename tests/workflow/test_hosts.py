"""Bringing hosts back by a run's name: exactly that run, never a neighbour with the same start."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import ExitCode, HostUnreachable, InputError
from fleetctl.spec.inventory import Host, Inventory
from fleetctl.transaction.outcome import Restored
from fleetctl.transaction.snapshot import HeldTransaction, Status
from fleetctl.workflow.hosts import rollback, worst_exit_code

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
        self.restored: list[str] = []

    def status(self) -> Status:
        return Status((), self.held)

    def restore(self, *, transaction: str, force: bool) -> Restored:
        assert not force
        self.restored.append(transaction)
        return Restored((transaction,), (), (), (), (), ())


@pytest.fixture
def fleet():
    """Two hosts, each with a kept change of its own run; `a` holds two."""
    agents = {"a": Agent("20261129-run", "20261129-run-2"), "b": Agent("20261130-run")}
    edges = SimpleNamespace(
        connect=lambda name, _host: SimpleNamespace(host_name=name, close=lambda: None),
        agent=lambda transport, _host: agents[transport.host_name],
    )
    inventory = Inventory(hosts={name: Host(**FACTS) for name in agents})
    return SimpleNamespace(
        agents=agents,
        rollback=lambda run: rollback(edges, inventory, list(agents), run_id=run, force=False),
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
