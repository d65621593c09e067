"""`fleetctl results` looks at any folder: whole, damaged, foreign."""

import contextlib
import json

import pytest

from fleetctl.cli.results import list_results, locked_inodes, show_result
from fleetctl.errors import FleetError
from fleetctl.store.run_folder import RunFolder

GARBAGE = [b"", b"[]", b"7", b'{"run', b"\xff\xfe", b"null"]


@pytest.mark.parametrize("name", ["run.json", "report.json"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_one_damaged_run_does_not_hide_the_others(tmp_path, capsys, name, garbage):
    RunFolder.create(tmp_path, "20260101-000000-good-aaaa", {"name": "good"})
    bad = RunFolder.create(tmp_path, "20260102-000000-bad-bbbb", {"name": "bad"})
    bad.write(name, garbage)

    list_results(tmp_path)

    first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["20260101-000000-good-aaaa", "not", "begun", "good"]
    assert second.split()[:2] == ["20260102-000000-bad-bbbb", "damaged"]


@pytest.mark.parametrize(
    "events", [["deploying"], ["held", "trial"], ["trial", "failed"], ["restored"], ["counted"]]
)
@pytest.mark.parametrize("kind", ["experiment", "matrix", "bisect", "minimize"])
def test_a_run_that_did_not_finish_is_unfinished_whatever_it_did_last(
    tmp_path, capsys, events, kind
):
    run = RunFolder.create(tmp_path, "r", {"name": "n", "kind": kind})
    for event in events:
        run.record(1.0, event)

    list_results(tmp_path, as_json=True)

    (row,) = json.loads(capsys.readouterr().out)
    assert (row["state"], row["kind"]) == ("unfinished", kind)
    list_results(tmp_path)
    assert capsys.readouterr().out.split() == ["r", "unfinished", kind, "n"]


def test_a_run_is_going_on_while_a_process_holds_it_and_finished_when_it_says_so(tmp_path, capsys):
    run = RunFolder.create(tmp_path, "r", {"name": "n"})

    with run.claimed():
        list_results(tmp_path)
    run.record(1.0, "finished")
    list_results(tmp_path)

    first, second = capsys.readouterr().out.splitlines()
    assert "going on" in first
    assert "finished" in second


@pytest.mark.parametrize("table", ["", "1: FLOCK\n", "garbage", "1: FLOCK A W 7 fe:00:x 0 EOF\n"])
def test_a_machine_that_can_not_tell_of_locks_calls_nothing_locked(tmp_path, table):
    (tmp_path / "locks").write_text(table)

    assert locked_inodes(tmp_path / "locks") == frozenset()
    assert locked_inodes(tmp_path / "absent") == frozenset()


@pytest.mark.parametrize("as_json", [False, True])
def test_no_runs_are_said_beside_an_empty_list(tmp_path, capsys, as_json):
    list_results(tmp_path / "runs", as_json=as_json)

    told = capsys.readouterr()
    assert told.out == ("[]\n" if as_json else "")
    assert told.err == f"no runs below {tmp_path / 'runs'}\n"


@pytest.mark.parametrize("name", ["run.json", "report.json", "report.txt", "events.jsonl"])
@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("as_json", [False, True])
def test_showing_garbage_is_never_worse_than_a_clear_error(tmp_path, name, garbage, as_json):
    RunFolder.create(tmp_path, "r", {"name": "r"}).write(name, garbage)

    with contextlib.suppress(FleetError):
        show_result("r", tmp_path, as_json)


def test_a_run_without_a_report_shows_its_events_as_lines(tmp_path, capsys):
    run = RunFolder.create(tmp_path, "r", {"name": "r"})
    run.record(1.0, "failed", what="lab-1 did not become ready", why="port\n| line of a log")

    show_result("r", tmp_path)

    assert capsys.readouterr().out.splitlines() == [
        "r has no report; its events:",
        "  00:00:01  failed",
        "            what:    lab-1 did not become ready",
        "            why:     port",
        "                     | line of a log",
    ]


@pytest.mark.parametrize("events", [[], ["failed"], ["found", "held", "failed", "resumed"]])
@pytest.mark.parametrize("kind", ["experiment", "matrix", "bisect", "minimize", "aa"])
def test_a_run_that_ended_before_it_changed_a_host_was_not_begun(tmp_path, capsys, events, kind):
    run = RunFolder.create(tmp_path, "r", {"name": "n", "kind": kind})
    for event in events:
        run.record(1.0, event)

    list_results(tmp_path, as_json=True)

    (row,) = json.loads(capsys.readouterr().out)
    assert row["state"] == "not begun"


@pytest.mark.parametrize(
    ("spec", "ending"),
    [
        ('[verdict]\nmetric = "failures"\n', "n (failures)"),
        ('[minimize]\nmetric = "failures"\n', "n (failures)"),
        ("[verdict]\n", "n"),
        ("verdict = 3\n", "n"),
        ("no TOML", "n"),
    ],
)
def test_what_is_counted_stands_beside_a_run_that_has_no_report_yet(tmp_path, capsys, spec, ending):
    run = RunFolder.create(tmp_path, "r", {"name": "n", "kind": "minimize", "spec": "s.toml"})
    run.write("spec/s.toml", spec.encode())

    list_results(tmp_path)

    assert capsys.readouterr().out.rstrip().endswith(f" {ending}")


def test_a_matrix_on_a_queue_is_never_called_not_begun_here(tmp_path, capsys):
    run = RunFolder.create(tmp_path, "r", {"name": "n", "kind": "matrix"})
    run.write_json("queue.json", {"address": "postgresql://u@h/d"})

    list_results(tmp_path)

    assert "unfinished" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "null"),
        (True, "true"),
        (0.5, "0.5"),
        ({"a": None}, '{"a": null}'),
        ([{"a": "it's"}, ["b", None], "c"], '{"a": "it\'s"}|b null|c'),
        ("None of them", "None of them"),
    ],
)
def test_what_an_event_says_is_text_or_json_and_never_a_python_value(tmp_path, capsys, value, told):
    run = RunFolder.create(tmp_path, "r", {"name": "r"})
    run.record(1.0, "trial", fact=value)

    show_result("r", tmp_path)

    lines = capsys.readouterr().out.splitlines()[2:]
    assert "|".join(line.replace("fact:", "").strip() for line in lines) == told
