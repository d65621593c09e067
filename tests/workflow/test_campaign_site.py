"""Cells on one site: whose fault a failure is, and when a host may be planned."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import (
    ConnectionLost,
    DriftError,
    ExitCode,
    Interrupted,
    LeaseHeld,
    NotReady,
    NotRestored,
    StoreError,
)
from fleetctl.spec.experiment import Trials
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow import campaign_site
from fleetctl.workflow.campaign_site import HeldSite, hold, trial_name
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.stopping import Stop, StoppableClock
from tests.contracts.cell_queue import cell_run
from tests.fakes.leaving_host import LeavingHost

LOST = ConnectionLost("h1 went away", why="", next_step="")


class Keeper:
    """A lease, held or lost."""

    def __init__(self, lost=None) -> None:
        self.lost = lost

    @property
    def is_disturbed(self) -> bool:
        return self.lost is not None

    def ask(self) -> None:
        """Learn nothing new."""

    def check(self) -> None:
        if self.lost is not None:
            raise self.lost


class WakesAtOnce(Stop):
    def wait(self, duration_s: float) -> None:
        del duration_s
        self.check()


@pytest.fixture
def edges():
    stop = WakesAtOnce()
    talk = SimpleNamespace(say=lambda _line: None, progress=lambda *_: None)
    clock = StoppableClock(SystemClock(), stop)
    return Edges(None, None, clock, stop, talk, "ann@desk", Path(), lambda: "salt")


def held(edges, tmp_path, keeper) -> HeldSite:
    folder = RunFolder.create(tmp_path, "r", {})
    plan = SimpleNamespace(site=SimpleNamespace(name="h1", hosts=()), hosts=())
    job = SimpleNamespace(trials=Trials(), ready=None)
    return HeldSite(edges, folder, job, plan, [SimpleNamespace(keeper=keeper)])


def measure_with(monkeypatch, site, failure):
    def deploy(*_):
        raise failure

    monkeypatch.setattr(campaign_site, "deploy", deploy)
    site.measure(cell_run(0), site.job)


@pytest.mark.parametrize("kind", [NotReady, Interrupted])
def test_what_fails_on_a_host_that_is_gone_is_the_host_s_fault(edges, tmp_path, monkeypatch, kind):
    site = held(edges, tmp_path, Keeper(LOST))

    with pytest.raises(ConnectionLost):
        measure_with(monkeypatch, site, kind("the trial broke off", why="", next_step=""))


@pytest.mark.parametrize("kind", [NotReady, DriftError])
def test_what_fails_on_a_host_that_is_there_keeps_its_name(edges, tmp_path, monkeypatch, kind):
    site = held(edges, tmp_path, Keeper())

    with pytest.raises(kind):
        measure_with(monkeypatch, site, kind("no", why="", next_step=""))
    assert site.arm == ""
    assert site.has_changed


def test_an_arm_that_stands_is_kept_only_while_the_proven_processes_serve(
    edges, tmp_path, monkeypatch
):
    site = held(edges, tmp_path, Keeper())
    site.job.trials = Trials(boot_per_run=False)
    invocations = iter(["one", "two"])
    unit = SimpleNamespace(unit="d.service")
    agent = SimpleNamespace(unit=lambda *_, **__: SimpleNamespace(invocation=next(invocations)))
    site.plan.site.hosts = (SimpleNamespace(agent=agent, host=unit),)
    made: list[str] = []

    def deploy(_edges, _site, _prepared, arm, _ready):
        made.append(arm)
        return SimpleNamespace(arm=arm, boot="one", proof=SimpleNamespace(shown=(), notes=()))

    monkeypatch.setattr(campaign_site, "deploy", deploy)
    for _ in range(3):
        site._deploy(edges, "a")

    # the first is made, the second stands, the third finds another process
    assert made == ["a", "a"]


def test_an_end_that_the_operator_asked_for_is_no_fault_of_a_host(edges, tmp_path, monkeypatch):
    site = held(edges, tmp_path, Keeper(LOST))
    edges.stop.ask("signal SIGINT")

    with pytest.raises(Interrupted):
        measure_with(monkeypatch, site, Interrupted("stopped", why="", next_step=""))


def test_no_two_attempts_share_a_folder():
    run = cell_run(7)
    again = type(run)(**{**run.to_json(), "attempt": 2})

    assert trial_name(run, "h1") != trial_name(again, "h1") != trial_name(again, "h2")


class Settling:
    """A host that holds a loose change for some looks."""

    def __init__(self, looks: int, *, held_for_s: float | None = None) -> None:
        self.looks = looks
        self.asked = 0
        self.held_for_s = held_for_s

    def status(self):
        self.asked += 1
        if self.asked > self.looks:
            return SimpleNamespace(leases=(), transactions=())
        change = SimpleNamespace(
            id="t", state="applied", run_id="r0", purpose="old", holder="bob@lab"
        )
        lease = SimpleNamespace(expires_in_s=self.held_for_s, transactions=("t",))
        leases = () if self.held_for_s is None else (lease,)
        return SimpleNamespace(leases=leases, transactions=(change,))


def test_a_host_that_is_restoring_itself_is_not_planned_before_it_is_done(edges):
    agent = Settling(3)

    campaign_site._wait_until_settled(edges, SimpleNamespace(name="h1", agent=agent))

    assert agent.asked == 4


def test_a_host_that_never_settles_is_not_planned_and_the_run_is_named(edges):
    with pytest.raises(LeaseHeld, match="h1 still holds") as refused:
        campaign_site._wait_until_settled(edges, SimpleNamespace(name="h1", agent=Settling(999)))

    assert "fleetctl rollback r0" in refused.value.next_step


def test_a_change_under_a_live_lease_is_left_to_the_plan_which_names_its_holder(edges):
    agent = Settling(99, held_for_s=30.0)

    campaign_site._wait_until_settled(edges, SimpleNamespace(name="h1", agent=agent))

    assert agent.asked == 1


def test_a_host_that_changed_between_plan_and_lease_is_not_measured(monkeypatch):
    before = SimpleNamespace(kind="file", sha256="a")
    now = SimpleNamespace(kind="file", sha256="b")
    plan = SimpleNamespace(reached=SimpleNamespace(name="h1"), touched={"/s.sh": before})

    monkeypatch.setattr(campaign_site, "look", lambda *_: {"/s.sh": before})
    campaign_site._check_as_found(plan)
    monkeypatch.setattr(campaign_site, "look", lambda *_: {"/s.sh": now})
    with pytest.raises(DriftError, match="h1 changed while it was planned"):
        campaign_site._check_as_found(plan)


def fill_the_disk(edges, tmp_path, host) -> None:
    """Hold a host, change it, and meet a full disk of this machine in the trial."""
    folder = RunFolder.create(tmp_path, "r", {})
    planned = SimpleNamespace(reached=host, plans={}, wanted={}, within=(), own_flags={})
    plan = SimpleNamespace(site=None, arms={}, hosts=(planned,))
    with hold(
        edges, folder, SimpleNamespace(kind="matrix", purpose="p", lease_s=60.0, flags=()), plan
    ) as site:
        site.has_changed = True
        raise OSError(28, "No space left on device")


def test_a_full_disk_in_a_trial_leaves_hosts_that_were_shown_to_be_back(
    edges, tmp_path, monkeypatch
):
    host, proven = LeavingHost("h1"), []

    def prove(site):
        proven.append(site)

    monkeypatch.setattr(campaign_site, "_check_as_found", lambda _: None)
    monkeypatch.setattr(HeldSite, "prove_restored", prove)

    with pytest.raises(StoreError, match="No space left") as told:
        fill_the_disk(edges, tmp_path, host)

    assert told.value.exit_code is ExitCode.FAILED_RESTORED
    assert "`fleetctl resume r`" in told.value.next_step
    assert host.lease is None
    assert len(proven) == 1


def test_a_full_disk_hides_no_host_that_is_not_back(edges, tmp_path, monkeypatch):
    host = LeavingHost("h1")
    monkeypatch.setattr(campaign_site, "_check_as_found", lambda _: host.leave())
    edges.stop.ask("nobody waits for it")

    with pytest.raises(NotRestored, match="h1 can't be reached"):
        fill_the_disk(edges, tmp_path, host)
