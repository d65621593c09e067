"""Following a campaign: what was counted comes home once, and an early end is told as such."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fleetctl.cli.console import Console
from fleetctl.cli.wiring import edges
from fleetctl.clock import SystemClock
from fleetctl.errors import ExitCode, InputError
from fleetctl.queue.address import parse_address
from fleetctl.queue.campaigns import Campaigns
from fleetctl.queue.content import Content
from fleetctl.queue.opening import joined
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.as_found import notes_of
from fleetctl.workflow.queued_matrix import follow, withdraw
from fleetctl.workflow.worker_courier import owner_of
from tests.contracts.cell_queue import cell_run, result_of

BLOCK = "gpu=h200"


@pytest.fixture(scope="module")
def here(url):
    with joined(parse_address(url), "here", SystemClock(), poll_s=0.05) as made:
        yield made


@pytest.fixture
def outside(tmp_path):
    with edges(tmp_path, Console()) as made:
        yield made


@pytest.fixture
def folder(here, tmp_path):
    made = RunFolder.create(tmp_path, uuid.uuid4().hex, {"kind": "matrix"})
    Campaigns(here.database).announce(made.run_id, {})
    here.campaign(made.run_id).put([cell_run(0), cell_run(1)])
    return made


def measure(here, folder, path="{trial}/facts.json", content=b"{}"):
    """Measure the next cell, and send one file home."""
    queue = here.campaign(folder.run_id)
    run = queue.take("s", block=BLOCK, worker="w")
    result = result_of(run)
    name = path.format(trial=result.trial)
    Content(here.database).attach(owner_of(folder.run_id, run), {name: content})
    assert queue.done(run, result)
    return result


def test_what_was_counted_comes_home_once_however_often_it_is_followed(outside, here, folder):
    results = [measure(here, folder), measure(here, folder)]

    for _ in range(2):
        end = follow(outside, folder, here)
        Campaigns(here.database).announce(folder.run_id, {})

    assert end.error is None
    assert end.results == tuple(results)
    assert (folder.path / results[0].trial / "facts.json").read_bytes() == b"{}"
    counted = [event.facts["id"] for event in folder.events() if event.kind == "counted"]
    assert counted == [result.id for result in results]


def test_what_a_worker_s_host_held_as_found_is_a_note_of_the_run_once(outside, here, folder):
    held = {"at_s": 1.0, "kind": "found", "host": "h", "run": "r", "what": "the kept change"}
    odd = {"at_s": 1.0, "kind": "found"}
    lines = "".join(f"{json.dumps(line)}\n" for line in (held, odd, {**held, "kind": "trial"}))
    for _ in range(2):
        measure(here, folder, "{trial}/events.jsonl", lines.encode())

    follow(outside, folder, here)

    (note,) = notes_of(folder)
    assert note.startswith("h as found held the kept change of run r")


def test_a_withdrawn_campaign_ends_and_says_that_it_is_not_whole(outside, here, folder):
    measure(here, folder)

    assert withdraw(folder, here) == 1
    end = follow(outside, folder, here)

    assert len(end.results) == 1
    assert end.error.exit_code is ExitCode.FAILED_RESTORED
    assert "withdrawn" in str(end.error)


def test_the_first_failed_cell_takes_the_rest_off_the_queue_where_that_is_wanted(
    outside, here, folder
):
    queue = here.campaign(folder.run_id)
    queue.failed(queue.take("s", block=BLOCK, worker="w"), "it never became ready")

    end = follow(outside, folder, here, fails_fast=True)

    assert "could not be measured" in str(end.error)
    assert queue.take("s", block=BLOCK, worker="w") is None


def test_who_follows_is_told_once_why_cells_fail_on_a_site_and_which_site_is_set_aside(
    outside, here, folder
):
    queue = here.campaign(folder.run_id)
    for _ in range(2):
        queue.failed(queue.take("s", block=BLOCK, worker="w"), "it never became ready")
    queue.quarantine("t", "no GPU")

    said: list[str] = []
    talk = SimpleNamespace(say=said.append, progress=lambda *_: None)
    follow(replace(outside, talk=talk), folder, here)

    assert said.count("s: it never became ready") == 1
    assert said.count("t is quarantined: no GPU") == 1


def test_a_file_that_would_leave_the_run_s_folder_is_refused(outside, here, folder):
    measure(here, folder, "../../elsewhere")

    with pytest.raises(InputError, match="outside the run's folder"):
        follow(outside, folder, here)
