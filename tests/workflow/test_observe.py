"""What is said of a host on which somebody works: who it is, not what the work looks like."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import DriftError, LeaseHeld
from fleetctl.transaction.code import CodeReport
from fleetctl.transaction.lease import Lease
from fleetctl.transaction.snapshot import HeldTransaction
from fleetctl.workflow.bisect_plan import plan_bisect, plan_minimize
from fleetctl.workflow.observe import observe

UNIT = "x.service"
LEASE = Lease("l1", "run-7", "ana@laptop", "e", UNIT, since_s=0.0, until_s=60.0)
RESTARTING = {"ActiveState": "deactivating", "SubState": "stop-sigterm"}
RUNNING = {"ActiveState": "active", "SubState": "running"}


class Agent:
    """A host whose unit is in some state, under somebody's lease or nobody's."""

    def __init__(self, state, *, expires_in_s: float = 30.0, lease: Lease = LEASE, left=()) -> None:
        self._unit = SimpleNamespace(unit=UNIT, problem="", properties=state)
        self._leases = (SimpleNamespace(lease=lease, expires_in_s=expires_in_s),)
        self._left = left

    def status(self):
        return SimpleNamespace(leases=self._leases, transactions=self._left)

    def observe(self, _query):
        return SimpleNamespace(units=(self._unit,), paths=(), status=self.status())

    def code(self, _query):
        return CodeReport(UNIT, ())


def host(agent: Agent):
    said = SimpleNamespace(unit=UNIT, serve_scripts=(), python="/py", tree="/tree")
    return SimpleNamespace(name="h", host=said, agent=agent)


@pytest.mark.parametrize("state", [RESTARTING, RUNNING, {"LoadState": "not-found"}])
def test_whatever_a_run_does_to_the_unit_it_is_the_run_that_is_named(state):
    with pytest.raises(LeaseHeld, match="h is held by ana@laptop") as caught:
        observe(host(Agent(state)), ())

    told = caught.value.next_step
    assert "run-7 (e)" in caught.value.why
    assert "`fleetctl resume run-7`" in told
    assert told.index("fleetctl resume") < told.index("talk to ana@laptop") < told.index("unlock")


def test_without_a_living_lease_on_this_unit_the_unit_is_to_blame():
    others = Lease("l1", "r", "a@b", "e", "other.service", since_s=0.0, until_s=60.0)
    for agent in (Agent(RESTARTING, expires_in_s=0.0), Agent(RESTARTING, lease=others)):
        with pytest.raises(DriftError, match="no state that could be brought back"):
            observe(host(agent), ())


def test_a_host_that_restores_itself_is_not_blamed_for_how_it_looks_meanwhile():
    left = HeldTransaction("t", "run-7", "ana@laptop", "e", UNIT, "reverting", 0.0, (), ())

    with pytest.raises(LeaseHeld, match="h is being restored"):
        observe(host(Agent(RESTARTING, expires_in_s=-1.0, left=(left,))), ())
    with pytest.raises(DriftError):
        observe(host(Agent(RESTARTING, left=(left,))), (), is_ours=True)


def test_a_search_may_look_at_the_host_that_it_holds_itself():
    assert observe(host(Agent(RUNNING)), (), is_ours=True).observed.units[0].unit == UNIT


@pytest.mark.parametrize("plan", [lambda *a: plan_bisect(*a, 0.15), plan_minimize])
def test_the_plan_of_a_search_looks_at_the_lease_before_it_lists_any_change(plan):
    fleet = SimpleNamespace(
        select=lambda _: ["h"],
        hosts={"h": SimpleNamespace(unit=UNIT, router_url=None, restart_order=0, labels={})},
    )
    edges = SimpleNamespace(
        connect=lambda _name, _host: SimpleNamespace(host_name="h", close=lambda: None),
        agent=lambda _transport, _host: Agent(RESTARTING),
    )
    bisect = SimpleNamespace(good_rate=None, bad_rate=None)
    asked = SimpleNamespace(
        spec=SimpleNamespace(bisect=bisect), job=SimpleNamespace(target="h"), contents=()
    )

    with pytest.raises(LeaseHeld, match="h is held by ana@laptop"):
        plan(edges, fleet, asked)
