"""Whatever fails, the exit code and the text tell what state the hosts are in."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from fleetctl import errors
from fleetctl.analysis.design import Order, schedule
from fleetctl.errors import (
    ConnectionLost,
    EditRefused,
    ExitCode,
    FleetError,
    InputError,
    Interrupted,
    NotReady,
    NotRestored,
    RestoreConflict,
    StoreError,
)
from fleetctl.store.run_folder import RunFolder
from fleetctl.transaction import failure
from fleetctl.workflow import fleet_run
from fleetctl.workflow import site_run as site_run_module
from fleetctl.workflow.experiment import finished_trials
from fleetctl.workflow.fleet_run import measure_sites
from fleetctl.workflow.restored import prove_restored
from fleetctl.workflow.site_run import SiteRun
from tests.fakes.recorded_trials import trial
from tests.workflow.sites import Agent, edges_at, site_plan, site_run


@pytest.fixture
def edges(tmp_path):
    return edges_at(tmp_path)


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "r", {})


def test_a_folder_that_can_not_be_written_gives_the_lease_back(edges, folder):
    (folder.path / "events.jsonl").mkdir()
    agent = Agent()

    with pytest.raises(StoreError) as failed:
        site_run(edges, folder, site_plan(agent)).run()

    assert failed.value.exit_code is ExitCode.REFUSED
    assert agent.said == ["acquire u", "release"]
    assert edges.talk.lines[-1].startswith("not recorded: failed")


def test_a_full_disk_in_a_trial_says_that_the_hosts_are_restored(edges, folder, monkeypatch):
    def disk_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SiteRun, "_trial", disk_full)
    run = site_run(edges, folder, site_plan(Agent()), _has_changed=True)
    run.slots = ("one",)

    with pytest.raises(StoreError, match="could not go on") as failed:
        run.run()

    assert failed.value.exit_code is ExitCode.FAILED_RESTORED
    assert [event.kind for event in folder.events()] == ["held", "restored", "failed"]


def test_a_host_that_can_not_be_looked_at_is_not_called_restored(edges, folder):
    plan = site_plan(Agent(answers=False))
    with pytest.raises(NotRestored, match="could not be looked at"):
        prove_restored(edges, plan.hosts[0])

    with pytest.raises(NotRestored) as failed:
        site_run(edges, folder, plan).run()

    assert failed.value.exit_code is ExitCode.FAILED_NOT_RESTORED
    assert [event.kind for event in folder.events()] == ["held", "failed"]


@pytest.mark.parametrize("kind", [NotReady, Interrupted, StoreError])
def test_a_failure_after_keep_names_the_hosts_that_keep_the_change(
    edges, folder, monkeypatch, kind
):
    def kept_then_failed(run):
        run.kept.append("a")
        raise kind("b failed", why="", next_step="")

    monkeypatch.setattr(fleet_run.SiteRun, "run", kept_then_failed)
    job = SimpleNamespace(kind="experiment", purpose="p", lease_s=60.0)

    with pytest.raises(kind) as failed:
        measure_sites(edges, folder, job, [site_plan(Agent())], {"a": ["slot"]}, keep="treatment")

    assert failed.value.exit_code is ExitCode.FAILED_NOT_RESTORED
    assert failed.value.why == "the change was already kept on a"
    assert "fleetctl rollback r" in failed.value.next_step


@pytest.mark.parametrize(("keep", "visited"), [("treatment", ["a"]), ("", [])])
def test_a_site_without_a_trial_to_make_is_only_visited_where_an_arm_is_to_stay(
    edges, folder, monkeypatch, keep, visited
):
    seen = []
    monkeypatch.setattr(fleet_run.SiteRun, "run", lambda run: seen.append(run.plan.site.name))
    job = SimpleNamespace(kind="experiment", purpose="p", lease_s=60.0)
    other = site_plan(Agent())
    other.site.name = "not dealt a run"

    measure_sites(edges, folder, job, [site_plan(Agent()), other], {"a": []}, keep=keep)

    assert seen == visited


def test_a_file_that_somebody_changed_between_two_arms_is_a_conflict(edges, folder, monkeypatch):
    plan = site_plan(Agent())
    plan.hosts[0].view.unit.properties["ActiveState"] = "active"  # differs: not as found

    def conflict(*_):
        raise RestoreConflict("somebody changed a file", why="x.py", next_step="decide")

    monkeypatch.setattr(SiteRun, "_trial", conflict)
    run = site_run(edges, folder, plan, _has_changed=True)
    run.slots = ("one",)

    with pytest.raises(RestoreConflict) as failed:
        run.run()

    assert failed.value.exit_code is ExitCode.CONFLICT


def two_hosts():
    plans = [site_plan(Agent()), site_plan(Agent())]
    plans[1].hosts[0].reached.name = "b"
    site = SimpleNamespace(name="a+b", machine="a", hosts=(), entry=None)
    hosts = (*plans[0].hosts, *plans[1].hosts)
    return SimpleNamespace(site=site, arms={}, hosts=hosts)


def test_a_host_that_is_not_back_hides_no_other_host_s_end_state(edges, folder):
    plan = two_hosts()
    refused = NotRestored("a is not back", why="immutable", next_step="chattr -i on a")

    def refuse(_lease):
        raise refused

    plan.hosts[0].reached.agent.release = refuse

    with pytest.raises(NotRestored, match="a is not back"):
        site_run(edges, folder, plan).run()

    assert any(line.startswith("b: restored") for line in edges.talk.lines)


def test_every_host_that_is_not_back_is_told_with_its_next_step(edges, folder):
    plan = two_hosts()
    for host in plan.hosts:
        host.reached.agent._answers = False

    with pytest.raises(NotRestored, match="a could not be looked at"):
        site_run(edges, folder, plan).run()

    assert edges.talk.lines == [
        "also failed: b could not be looked at after it was restored: a went away: reset by peer",
        "  hint: `fleetctl status --host b` when it answers again",
    ]


def test_what_failed_first_is_told_beside_a_host_that_is_not_back(edges, folder, monkeypatch):
    def not_ready(*_):
        raise NotReady("it hangs", why="no answer", next_step="look at its log")

    monkeypatch.setattr(SiteRun, "_trial", not_ready)
    run = site_run(edges, folder, site_plan(Agent(answers=False)), _has_changed=True)
    run.slots = ("one",)

    with pytest.raises(NotRestored):
        run.run()

    assert edges.talk.lines == ["a failed: it hangs: no answer", "  hint: look at its log"]


def test_a_host_that_came_back_after_all_is_called_restored(edges, folder, monkeypatch):
    def not_back(*_):
        raise NotRestored("a is not back", why="its disk was full", next_step="make room")

    monkeypatch.setattr(SiteRun, "_trial", not_back)
    run = site_run(edges, folder, site_plan(Agent()), _has_changed=True)
    run.slots = ("one",)

    with pytest.raises(NotRestored) as failed:
        run.run()

    assert failed.value.exit_code is ExitCode.FAILED_RESTORED
    assert edges.talk.lines == ["a: restored: 0 paths and the unit are as found"]


def test_a_trial_that_was_ended_because_its_host_left_is_redone_and_says_why(
    edges, folder, monkeypatch
):
    plan = site_plan(Agent())
    keeper, tries = [], []

    def make(run, _prepared, slot, watching):
        tries.append(slot)
        if len(tries) == 1:
            keeper.append(run._keepers[0])
            plan.hosts[0].reached.transport.times_lost += 1
            raise Interrupted("the sessions were stopped", why="", next_step="")
        assert not watching.stop.is_asked

    monkeypatch.setattr(SiteRun, "_trial", make)
    run = site_run(edges, folder, plan)
    run.slots = ("one",)
    run.run()

    assert tries == ["one", "one"]
    assert edges.talk.lines[0].startswith("a: went away (the connection to a broke")
    kinds = [event.kind for event in folder.events()]
    assert kinds == ["held", "away", "back", "restored"]


def test_a_host_that_keeps_leaving_ends_the_run_restored(edges, folder, monkeypatch):
    plan = site_plan(Agent())

    def make(*_):
        plan.hosts[0].reached.transport.times_lost += 1
        raise Interrupted("the sessions were stopped", why="", next_step="")

    monkeypatch.setattr(SiteRun, "_trial", make)
    run = site_run(edges, folder, plan, _has_changed=True)
    run.slots = ("one",)

    with pytest.raises(ConnectionLost, match="connection to a broke") as failed:
        run.run()

    assert failed.value.exit_code is ExitCode.FAILED_RESTORED
    assert [event.kind for event in folder.events()].count("away") == 3


def test_what_is_not_ready_in_the_end_is_never_kept(edges, folder, monkeypatch):
    """A commit needs a service that serves at that very moment, not one that did for a trial."""
    kept = []

    def not_ready(*_):
        raise NotReady("it hangs", why="no answer", next_step="look at its log")

    monkeypatch.setattr(site_run_module, "wait_ready", not_ready)
    monkeypatch.setattr(site_run_module, "keep_all", lambda *words: kept.append(words))
    agent = Agent()
    run = site_run(edges, folder, site_plan(agent), keep="treatment", _has_changed=True)
    run._deployed = SimpleNamespace(arm="treatment")
    run.job.ready = None

    with pytest.raises(NotReady) as failed:
        run.run()

    assert failed.value.exit_code is ExitCode.FAILED_RESTORED
    assert (kept, run.kept) == ([], [])
    assert agent.said == ["acquire u", "release"]


KINDS = [
    kind
    for module in (errors, failure)
    for kind in vars(module).values()
    if isinstance(kind, type)
    and issubclass(kind, FleetError)
    and kind.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", KINDS)
def test_no_failure_after_a_change_ends_with_0_or_as_if_nothing_had_been_touched(
    edges, folder, monkeypatch, kind
):
    def fail(*_):
        raise kind("it failed", why="w", next_step="n", **more)

    more = {"code": "ambiguous"} if issubclass(kind, EditRefused) else {}
    monkeypatch.setattr(SiteRun, "_trial", fail)
    run = site_run(edges, folder, site_plan(Agent()), _has_changed=True)
    run.slots = ("one",)

    with pytest.raises(kind) as failed:
        run.run()

    allowed = {ExitCode.FAILED_RESTORED, ExitCode.INTERRUPTED, ExitCode.INTERNAL}
    assert failed.value.exit_code in allowed


@pytest.fixture
def measured(edges, folder, monkeypatch):
    """Make two runs per arm on one host; each try ends in the next of `codes`, None is sound."""

    def make(*codes):
        left, booted = list(codes), []
        run = site_run(edges, folder, site_plan(Agent()))

        def deploy(_run, _prepared, arm, _edges):
            run._has_changed = True
            run._deployed = SimpleNamespace(arm=arm)
            booted.append(arm)

        def measure(_edges, _site, _deployed, slot, _measuring, name):
            code = left.pop(0)
            void = {} if code is None else {"counted": 0, "void_because": (f"it said {code}",)}
            made = trial(slot.position, slot.arm, slot.run, 0, program_exit=code, **void)
            return replace(made, trial=name)

        monkeypatch.setattr(SiteRun, "_deploy", deploy)
        monkeypatch.setattr(SiteRun, "_measuring", lambda _: None)
        monkeypatch.setattr(site_run_module, "measure", measure)
        run.slots = schedule(2, Order.INTERLEAVED, 0, host="a")
        return run, booted

    return make


def test_a_workload_program_that_can_t_run_ends_the_run_after_one_trial_and_its_repetition(
    folder, measured
):
    run, booted = measured(127, 127)

    with pytest.raises(InputError, match="program does not get going") as failed:
        run.run()

    assert failed.value.exit_code is ExitCode.FAILED_RESTORED
    assert "it said 127: 2 times alike" in failed.value.why
    assert f"read {folder.path}/trials/001-control-2/stderr.txt" in failed.value.next_step
    assert "`fleetctl resume r`" in failed.value.next_step
    assert len(booted) == 2
    assert (run.facts, finished_trials(folder)) == ([], {})  # a resume makes it again
    assert [event.kind for event in folder.events()][-2:] == ["restored", "failed"]


@pytest.mark.parametrize("codes", [(127, None, 127, 127, None, None), (1, 1, 1, 1, 1, 1, 1, 1)])
def test_a_program_that_was_seen_at_work_or_fails_by_itself_ends_no_run(measured, codes):
    run, booted = measured(*codes)
    run.run()

    assert (len(booted), len(run.facts)) == (len(codes), 4)
