"""A search on a site that now and then does not start, gives nothing usable, or is lost."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import ApplyFailed, ExitCode, InputError, NotReady, NotRestored
from fleetctl.store.run_folder import RunFolder
from fleetctl.store.search_log import SearchLog
from fleetctl.workflow import bisect_loop
from fleetctl.workflow.bisect_loop import Searching, unusable
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.site import NamedSite
from tests.workflow.searches import JOB, Asks, Site, facts, failed


@pytest.fixture
def run(tmp_path, monkeypatch):
    def start(search, behaviour):
        site = Site(behaviour)
        monkeypatch.setattr(bisect_loop, "held_site", site.held)
        monkeypatch.setattr(bisect_loop, "check_layout", lambda *_: None)
        monkeypatch.setattr(
            bisect_loop, "Ground", SimpleNamespace(of=lambda _: SimpleNamespace(add=lambda _: None))
        )
        folder = RunFolder(tmp_path) if (tmp_path / "run.json").exists() else None
        folder = folder or RunFolder.create(tmp_path, "r", {})
        talk = SimpleNamespace(say=lambda _: None)
        searching = Searching(
            SimpleNamespace(talk=talk),
            None,
            folder,
            JOB,
            NamedSite(("a",), "", ""),
            lambda _: search,
        )
        return site, searching, SearchLog(folder)

    return start


def test_every_build_is_measured_under_one_lease(run):
    site, searching, log = run(Asks((0,), (1,), (2,)), lambda _: facts(1))

    searching.run()

    assert site.taken == 1
    assert [answered.asked.number for answered in log.answers()] == [0, 1, 2]


def test_a_build_that_does_not_start_is_left_out_and_the_site_is_taken_anew(run):
    site, searching, log = run(
        Asks((0,), (1,), (2,)), lambda r: failed() if r.arm == "build 1" else facts(1)
    )

    searching.run()

    assert site.taken == 2
    assert [answered.asked.key for answered in log.answers()] == [(0,), (2,)]
    assert list(log.unbuildables()) == [(1,)]


def test_a_build_that_can_not_be_made_costs_no_lease(run):
    site, searching, log = run(Asks((0,), (1,), unfit=[(0,)]), lambda _: facts(1))

    searching.run()

    assert site.taken == 1
    assert log.unbuildables() == {(0,): "it does not fit"}


@pytest.mark.parametrize(
    ("kind", "code", "tries"),
    [
        (NotReady, ExitCode.FAILED_RESTORED, 2),
        (NotRestored, ExitCode.FAILED_NOT_RESTORED, 1),
        (ApplyFailed, ExitCode.CONFLICT, 1),
    ],
)
def test_an_end_that_fails_twice_or_a_host_that_is_not_back_ends_the_search(run, kind, code, tries):
    site, searching, log = run(Asks((0,), must_work=[(0,)]), lambda _: failed(kind, code))

    with pytest.raises(kind):
        searching.run()

    assert site.taken == tries
    assert log.unbuildables() == {}


def test_an_end_that_only_starts_now_and_then_is_started_once_more(run):
    starts = {"build 0": [False, True], "build 1": [True]}
    site, searching, log = run(
        Asks((0,), (1,), must_work=[(0,)]),
        lambda r: facts(1) if starts[r.arm].pop(0) else failed(),
    )

    searching.run()

    assert site.taken == 2
    assert [answered.asked.key for answered in log.answers()] == [(0,), (1,)]
    assert log.unbuildables() == {}


def test_a_host_left_in_conflict_is_not_taken_anew(run):
    conflict = failed(ApplyFailed, ExitCode.CONFLICT)
    site, searching, _ = run(Asks((0,), (1,)), lambda _: conflict)

    with pytest.raises(ApplyFailed):
        searching.run()

    assert site.taken == 1


def test_a_host_on_which_nothing_starts_is_not_blamed_on_the_builds(run):
    site, searching, log = run(Asks(*((k,) for k in range(9))), lambda _: failed())

    with pytest.raises(NotReady):
        searching.run()

    assert len(log.unbuildables()) == 3
    assert site.taken == 4


def test_a_search_says_only_what_the_trial_itself_has_not_said(run):
    more = {"void_because": ["the client lagged"], "disturbances": ["h: the unit restarted"]}
    _, searching, _ = run(Asks((0,)), lambda r: {**facts(0), **more} if r.attempt < 2 else facts(7))
    said = []
    searching.edges.talk.say = said.append

    searching.run()

    # `measure` says why a trial is void; who is disturbed shows afterwards
    assert [line for line in said if "lagged" in line or "not us" in line] == [
        "  not usable: h: the unit restarted"
    ] * 2


def test_a_trial_that_says_nothing_is_made_again_and_never_counted(run):
    spoilt = {**facts(0), "void_because": ["the client lagged"]}
    site, searching, log = run(Asks((0,)), lambda r: spoilt if r.attempt < 2 else facts(7))

    searching.run()

    assert [attempt for _, _, attempt in site.measured] == [0, 1, 2]
    assert [answered.facts["corrupted"] for answered in log.answers()] == [7]


def test_three_useless_trials_end_the_search_as_invalid(run):
    useless = {**facts(0), "missed_triggers": ["the largest batch was 1"]}
    _, searching, log = run(Asks((0,)), lambda _: useless)

    with pytest.raises(InputError, match="could not be used") as ended:
        searching.run()

    assert ended.value.exit_code is ExitCode.INVALID
    assert "largest batch" in ended.value.why
    assert log.answers() == ()


@pytest.mark.parametrize("ends", [(127, 127), (2, 2)])
def test_a_program_that_does_not_get_going_ends_the_search_after_one_repetition(run, ends):
    codes = iter(ends)
    in_vain = {**facts(0, sessions=0), "void_because": ["it said so"]}
    site, searching, log = run(Asks((0,), (1,)), lambda _: {**in_vain, "program_exit": next(codes)})

    with pytest.raises(InputError, match="does not get going") as ended:
        searching.run()

    assert len(site.measured) == 2
    assert "`fleetctl resume r` where only the program was missing" in ended.value.next_step
    assert log.answers() == ()


def test_a_program_that_was_seen_at_work_is_tried_three_times(run):
    in_vain = {**facts(0, sessions=0), "void_because": ["it said so"], "program_exit": 127}
    site, searching, _ = run(
        Asks((0,), (1,)), lambda r: facts(1) if r.arm == "build 0" else in_vain
    )

    with pytest.raises(InputError, match="could not be used"):
        searching.run()

    assert len(site.measured) == 1 + 3


def test_a_trial_without_a_counted_session_is_not_clean():
    assert unusable(TrialFacts.from_json(facts(0, sessions=0)), "corruption") == (
        "no session of it counts",
    )
    assert unusable(TrialFacts.from_json(facts(0)), "corruption") == ()
