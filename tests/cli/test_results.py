"""`fleetctl results` looks at any folder: whole, damaged, foreign."""

import contextlib

import pytest

from fleetctl.cli.results import list_results, show_result
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
    assert first.split() == ["20260101-000000-good-aaaa", "begun", "good"]
    assert second.split()[:2] == ["20260102-000000-bad-bbbb", "damaged"]


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
