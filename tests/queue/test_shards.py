"""One trial's load by two other machines, over a real queue; one that dies makes it invalid."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from fleetctl.cli.console import Console
from fleetctl.cli.wiring import edges
from fleetctl.clock import SystemClock
from fleetctl.queue.address import parse_address
from fleetctl.queue.opening import joined
from fleetctl.queue.shards import Shards, ShardTask
from fleetctl.serving.load import TrialPlan
from fleetctl.serving.loads import fetch_json
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import TranscriptFolder, read_transcripts
from fleetctl.spec.loader import load_inventory
from fleetctl.trial.workload import ToolcallWorkload
from fleetctl.workflow.matrix import read_matrix
from fleetctl.workflow.site import address_of
from fleetctl.workflow.worker_shards import ShardCrew, ShardedDriver
from fleetctl.workflow.workloads import toolcall_of
from tests.fakes.openai_server import serve

__all__ = ["serve"]

LOST_AFTER_S = 4.0
SPEC = """
[experiment]
name = "load"
target = "decode"
[matrix]
baseline = { ge = "off" }
[[factor]]
name = "ge"
[[factor.level]]
name = "off"
env = { GE = "0" }
[[factor.level]]
name = "on"
env = { GE = "1" }
[workload]
kind = "toolcall"
sessions = 8
rounds = 1
context_tokens = 40
"""


class StraightCrew(ShardCrew):
    """A crew whose way to the service is no SSH connection."""

    url = ""

    @contextmanager
    def _way_to(self, asked, task) -> Iterator[Target]:
        yield Target(self.url, "fake")


def crew(queue: str, service: str, spec: Path, name: str) -> None:
    """Drive shards until killed; a process of its own."""
    asked = read_matrix(spec)
    fleet = load_inventory(Path(__file__).parents[2] / "inventory" / "example.toml")
    address = parse_address(queue)
    with (
        edges(spec.parent, Console()) as outside,
        joined(address, name, SystemClock(), lost_after_s=LOST_AFTER_S) as here,
    ):
        made = StraightCrew(
            outside, fleet, here, spec.parent / name, 2, lambda campaign: asked, lambda: ["lab-1"]
        )
        made.url = service
        while True:
            made.step()
            outside.clock.sleep(0.1)


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "load.toml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def coordinator(url):
    address = parse_address(url)
    with joined(address, "coordinator", SystemClock(), lost_after_s=LOST_AFTER_S) as here:
        yield here


@pytest.fixture
def crews(url, spec):
    """A function that starts two crews against a server."""
    context = multiprocessing.get_context("spawn")
    made: list[BaseProcess] = []

    def start(service: str) -> list[BaseProcess]:
        for name in ("first", "second"):
            process = context.Process(target=crew, args=(url, service, spec, name))
            process.start()
            made.append(process)
        return made

    yield start
    for process in made:
        process.terminate()
        process.join(10)
        process.kill()
        process.join()


def plan_of(spec: Path, url: str) -> TrialPlan:
    workload: ToolcallWorkload = toolcall_of(read_matrix(spec).job.workload)
    labels = {"run": "c1", "trial": "trials/001", "host": "lab-1", "arm": "ge=off"}
    return TrialPlan(workload, Target(url, "fake"), root_seed=5, labels=labels)


def drive(here, plan, folder, shards):
    driver = ShardedDriver(here, shards, SystemClock())
    end_s = time.monotonic() + 100
    return driver(
        plan,
        store=TranscriptFolder(folder),
        on_outcome=lambda outcome: None,
        is_stopped=lambda: time.monotonic() > end_s,
    )


def test_two_machines_drive_one_trial_and_every_session_comes_home(
    serve, coordinator, crews, spec, tmp_path
):
    server = serve(first_delay_s=0.2)
    crews(server.url)

    trial = drive(coordinator, plan_of(spec, server.url), tmp_path / "home", shards=4)

    # the machine that runs the tests may be too busy, which is found; nothing else may be
    assert all("client was overloaded" in reason for reason in trial.invalid_because)
    assert [outcome.session for outcome in trial.outcomes] == list(range(8))
    assert trial.counted == 8
    assert trial.client.processes == 4
    assert trial.exposure.peak_concurrency == 8
    files = TranscriptFolder(tmp_path / "home").files()
    lines = [line for file in files for line in read_transcripts(file)]
    assert sorted(x["session"] for x in lines if x["kind"] == "session") == list(range(8))
    assert {x["labels"]["run"] for x in lines} == {"c1"}


def test_a_machine_that_dies_makes_the_trial_invalid_and_the_others_stop(
    serve, coordinator, crews, spec, tmp_path
):
    server = serve(delay_s=120)
    started = crews(server.url)
    plan = plan_of(spec, server.url)
    found: list[object] = []
    thread = threading.Thread(
        target=lambda: found.append(drive(coordinator, plan, tmp_path / "home", shards=4))
    )
    thread.start()
    while len(server.behaviour.seen) < 8:
        time.sleep(0.1)

    os.kill(started[0].pid, signal.SIGKILL)
    thread.join(60)

    (trial,) = found
    assert not trial.is_valid
    assert trial.sessions == 8
    assert trial.counted == 0
    assert any("shard" in reason and "was lost" in reason for reason in trial.invalid_because)
    assert Shards(coordinator.database, "anybody").take(["lab-1"]) is None


def test_a_crew_reaches_the_service_through_its_own_login(lab_hosts, coordinator, spec, tmp_path):
    lab_hosts.wait_until_active("lab-1")
    fleet = load_inventory(lab_hosts.inventory)
    asked = read_matrix(spec)
    task = ShardTask("c1/trials/001", 0, {"site": "lab-1"})
    with edges(tmp_path, Console()) as outside:
        made = ShardCrew(outside, fleet, coordinator, tmp_path, 1, lambda name: asked, list)

        with made._way_to(asked, task) as target:
            health = fetch_json(address_of(target.url), "/health")

    assert health == {"status": "ok"}
