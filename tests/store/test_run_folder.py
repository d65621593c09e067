"""A run's folder survives crashes: events are whole lines, files are old or new."""

import pytest

from fleetctl.errors import InputError
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
