"""What a cell left on a worker's disk comes home with its result, and only with it."""

from __future__ import annotations

import json
import uuid

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import InputError, QueueError
from fleetctl.queue.address import parse_address
from fleetctl.queue.campaigns import OpenCampaign
from fleetctl.queue.content import Content
from fleetctl.queue.database import Database
from fleetctl.store.campaign import RunPhase
from fleetctl.store.campaign_sqlite import SqliteQueue
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow import worker_courier
from fleetctl.workflow.worker_courier import Courier, fetch_campaign, owner_of
from tests.contracts.cell_queue import cell_run, result_of

BLOCK = "gpu=h200"


@pytest.fixture
def content(url):
    with Database(parse_address(url), SystemClock(), "test") as database:
        database.set_up()
        yield Content(database)


@pytest.fixture
def couriers(content, tmp_path):
    """Two workers of one campaign, each with a disk of its own."""
    name = uuid.uuid4().hex
    with SqliteQueue(tmp_path / "queue.sqlite") as queue:
        queue.put([cell_run(0), cell_run(1)])
        yield [
            Courier(
                queue,
                content,
                RunFolder.create(tmp_path / who, name, {}),
                SystemClock(),
                f"me@{who}",
            )
            for who in ("here", "there")
        ]


def measure(courier, site="s"):
    run = courier.take(site, block=BLOCK, worker="w")
    result = result_of(run)
    courier.folder.record(SystemClock().now_s(), "deployed", site=site)
    courier.folder.record(SystemClock().now_s(), "deployed", site="another")
    said = uuid.uuid4().bytes  # content is kept by digest: equal bytes would be there already
    courier.folder.write(f"{result.trial}/transcripts.0.jsonl.gz", said)
    return run, result


def test_transcripts_and_the_site_s_events_are_sent_before_the_result_counts(couriers, content):
    here = couriers[0]
    run, result = measure(here)

    assert here.done(run, result)

    files = content.files(owner_of(here.folder.run_id, run))
    events = f"{result.trial}/events.jsonl"
    assert set(files) == {f"{result.trial}/transcripts.0.jsonl.gz", events}
    lines = [json.loads(line) for line in content.bytes_of(files[events], events).splitlines()]
    assert [(line["kind"], line["site"]) for line in lines] == [("deployed", "s")]


def test_what_a_site_held_before_the_campaign_is_sent_with_each_of_its_trials(couriers, content):
    here = couriers[0]
    for host in ("s", "another"):
        here.folder.record(0.0, "found", host=host, run="r", what="the kept change")

    for run, result in (measure(here), measure(here)):
        assert here.done(run, result)
        events = f"{result.trial}/events.jsonl"
        file = content.files(owner_of(here.folder.run_id, run))[events]
        first = json.loads(content.bytes_of(file, events).splitlines()[0])
        assert (first["kind"], first["host"]) == ("found", "s")


def test_a_file_that_is_too_large_stays_and_is_named(couriers, content, monkeypatch):
    monkeypatch.setattr(worker_courier, "MOST_BYTES", 3)
    here = couriers[0]
    run, result = measure(here)

    assert here.done(run, result)

    file = content.files(owner_of(here.folder.run_id, run))[
        f"{result.trial}/transcripts.0.jsonl.gz"
    ]
    assert file.size_bytes == 16
    assert file.place.startswith("me@here:/")
    with pytest.raises(QueueError, match="holds nothing under it"):
        content.bytes_of(file, "transcripts")


def test_a_trial_that_was_calibrated_unlike_the_others_is_made_again(couriers):
    here, there = couriers
    here.folder.write("calibration.json", b'{"tokens_per_word": 1.3}')
    there.folder.write("calibration.json", b'{"tokens_per_word": 1.4}')
    assert here.done(*measure(here))
    run, result = measure(there)

    assert not there.done(run, result)

    assert there.state().in_phase(RunPhase.WAITING)[0].run.id == run.id
    assert there.folder.read_json("calibration.json") == {"tokens_per_word": 1.3}
    assert there.done(*measure(there))


def test_a_campaign_is_fetched_by_digest_and_stays_in_its_folder(content, tmp_path):
    name = uuid.uuid4().hex
    content.attach(name, {"spec/m.toml": b"[x]", "calibration.json": b"{}"})
    known = content.files(name)
    head = {"run": {"spec": "m.toml"}, "files": {"spec/m.toml": known["spec/m.toml"].sha256}}

    folder, spec = fetch_campaign(content, OpenCampaign(name, head, frozenset()), tmp_path)

    assert (folder.run_id, spec.read_bytes()) == (name, b"[x]")
    assert folder.has("calibration.json")
    outside = {**head, "files": {"spec/../../x": known["spec/m.toml"].sha256}}
    with pytest.raises(InputError, match="outside the run's folder"):
        fetch_campaign(content, OpenCampaign(name, outside, frozenset()), tmp_path)
    changed = {**head, "files": {"spec/m.toml": "0" * 64}}
    with pytest.raises(QueueError, match="holds nothing under it"):
        fetch_campaign(content, OpenCampaign(name, changed, frozenset()), tmp_path)
    with pytest.raises(InputError, match="can't be understood"):
        fetch_campaign(content, OpenCampaign(name, {}, frozenset()), tmp_path)
