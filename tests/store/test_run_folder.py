"""A run's folder survives crashes: events are whole lines, files are old or new."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from fleetctl.errors import InputError, StoreError
from fleetctl.store.history import History
from fleetctl.store.run_folder import RunFolder, find_run, list_runs, new_run_id


@pytest.fixture
def run(tmp_path):
    return RunFolder.create(tmp_path, "20261129-184230-eager-3f9a", {"kind": "experiment"})


def test_events_come_back_in_order(run):
    run.record(1.0, "planned", host="a")
    run.record(2.0, "applied", host="a")

    assert [(event.kind, event.facts["host"]) for event in run.events()] == [
        ("planned", "a"),
        ("applied", "a"),
    ]


@pytest.mark.parametrize("odd", ["\u2028", "\u0085", "\x1e", "\f", "\r\n"])
def test_only_a_line_feed_ends_an_event_whatever_an_error_says(run, odd):
    run.record(1.0, "failed", why=f"the unit said{odd}no")

    assert [event.facts["why"] for event in run.events()] == [f"the unit said{odd}no"]


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_log_torn_at_any_byte_keeps_the_events_before_and_after(run, cut):
    run.record(1.0, "first")
    run.record(2.0, "second")
    log = run.path / "events.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[: len(whole) - cut])
    run.record(3.0, "third")

    kinds = [event.kind for event in run.events()]
    assert kinds[0] == "first" or cut > len(whole) - whole.index(b"\n")
    assert kinds[-1] == "third"


def test_a_second_run_of_the_same_id_is_refused(run, tmp_path):
    with pytest.raises(InputError, match="can't make the run folder"):
        RunFolder.create(tmp_path, run.run_id, {})


def test_runs_are_found_by_a_unique_beginning(run, tmp_path):
    other = RunFolder.create(tmp_path, "20261129-184500-eager-aaaa", {})

    assert list_runs(tmp_path) == [run, other]
    assert find_run(tmp_path, "20261129-1842") == run
    with pytest.raises(InputError, match="more than one"):
        find_run(tmp_path, "20261129")
    with pytest.raises(InputError, match="no run"):
        find_run(tmp_path, "2027")


def test_a_missing_file_of_a_run_is_a_clear_error(run):
    with pytest.raises(InputError, match=r"no readable report\.json"):
        run.read_json("report.json")


def test_run_ids_sort_by_time_and_are_safe_file_names():
    ids = [new_run_id(at_s, "a b/c", "x") for at_s in (0.0, 86400.0)]

    assert ids == sorted(ids)
    assert "/" not in ids[0]


@pytest.mark.parametrize(
    "foreign",
    [
        "[1]",
        '"x"',
        "7",
        "null",
        "{}",
        '{"at_s": 1}',
        "\udcff",
        pytest.param("[" * 99_999, id="deep"),
    ],
)
def test_foreign_lines_in_the_log_are_passed_over(run, foreign):
    with (run.path / "events.jsonl").open("ab") as log:
        log.write(foreign.encode(errors="surrogateescape") + b"\n")
    run.record(1.0, "planned")

    assert [event.kind for event in run.events()] == ["planned"]


@pytest.mark.parametrize(
    "foreign", [b"[]", b"7", b'{"run', b"", b"\xff", pytest.param(b"[" * 99_999, id="deep")]
)
def test_a_damaged_head_is_a_clear_error(run, foreign):
    (run.path / "run.json").write_bytes(foreign)

    with pytest.raises(InputError, match=r"no readable run\.json"):
        run.head()


def test_an_observer_is_acquitted_only_by_the_metric_that_convicted_it(tmp_path):
    history = History(tmp_path)
    history.add_observer("canary", "worse", "r1", "failures")
    history.add_observer("canary", "no_effect", "r2")
    assert history.perturbing_observers() == ("canary",)

    history.add_observer("canary", "no_effect", "r3", "failures")
    assert history.perturbing_observers() == ()


@pytest.mark.parametrize("name", ["aa.jsonl", "observers.jsonl"])
@pytest.mark.parametrize(
    "foreign", ["{}", '{"name": 1, "runs": 3}', '{"observer": [], "verdict": {}}']
)
def test_foreign_lines_in_the_history_cost_nobody_a_verdict(tmp_path, name, foreign):
    (tmp_path / name).write_text(foreign + "\n")
    history = History(tmp_path)
    history.add_observer("canary", "worse", "r")

    assert history.aa_records() == ()
    assert history.perturbing_observers() == ("canary",)


def test_what_can_not_be_written_is_one_clear_error(run):
    blocker = run.path / "trials"
    blocker.write_text("a file where a folder should be")

    with pytest.raises(StoreError, match="can't write"):
        run.write("trials/001/facts.json", b"{}")
    (run.path / "events.jsonl").mkdir()
    with pytest.raises(StoreError, match="can't write"):
        run.record(1.0, "planned")
    with pytest.raises(StoreError):
        History(blocker).add_observer("canary", "worse", "r")


def test_a_file_is_no_folder_of_runs(tmp_path):
    (tmp_path / "runs").write_text("")

    with pytest.raises(InputError, match="can't list the runs"):
        list_runs(tmp_path / "runs")


def test_a_wrong_name_shows_the_newest_runs_and_not_hundreds(tmp_path):
    for number in range(30):
        RunFolder.create(tmp_path, f"run-{number:02d}", {})

    with pytest.raises(InputError) as refused:
        find_run(tmp_path, "nope")
    assert "run-29, and 25 earlier" in refused.value.why


def test_a_run_that_still_goes_on_is_not_claimed_twice(run):
    with (
        run.claimed(),
        pytest.raises(InputError, match="still going on"),
        RunFolder(run.path).claimed(),
    ):
        pass
    with run.claimed():
        pass


def test_events_are_counted_by_kind_also_by_several_at_once(run):
    with ThreadPoolExecutor(4) as pool:
        numbers = list(
            pool.map(
                lambda n: run.record_numbered(0.0, "measuring", trial=f"{n}"), map(str, range(12))
            )
        )
    run.record(0.0, "trial", trial="0")

    assert sorted(numbers) == list(range(12))
    # a trial that is begun again after an interruption has the name of before
    assert run.record_numbered(0.0, "measuring", trial="3") == 12
    assert RunFolder(run.path).record_numbered(0.0, "measuring", trial="x") == 13


def test_who_looks_for_a_run_in_the_wrong_folder_is_not_sent_to_an_empty_list(tmp_path):
    with pytest.raises(InputError) as caught:
        find_run(tmp_path, "latest")

    assert "--runs" in caught.value.next_step
    assert "list" not in caught.value.next_step


def test_the_latest_run_may_be_asked_for_without_one_kind_that_can_not_be_resumed(tmp_path):
    for number, kind in enumerate(["experiment", "repro", ""]):
        run = RunFolder.create(tmp_path, f"{number}", {"kind": kind})
        os.utime(run.path / "run.json", (number, number))
    (tmp_path / "2" / "run.json").write_bytes(b"damaged")
    os.utime(tmp_path / "2" / "run.json", (0, 0))

    assert find_run(tmp_path, "latest").run_id == "1"
    assert find_run(tmp_path, "latest", latest_but="repro").run_id in {"0", "2"}
    assert find_run(tmp_path, "1", latest_but="repro").run_id == "1"
