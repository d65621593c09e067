"""Matrices on a queue as people use them: workers with hosts of their own, and no spec at hand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetctl.errors import ExitCode
from tests.end_to_end.fleets import DIFF, EVERYTHING, KEYS, LEFTOVERS, Person, matrix_toml


@dataclass(frozen=True)
class Fleet:
    """A controller and a worker per lab host, each with a folder and an inventory of its own."""

    controller: Person
    workers: dict[str, Person]
    url: str
    before: dict[str, str]
    ask: Callable[[str, str], str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def matrix(self, *, runs: int, trial_s: float) -> Path:
        patch = self.controller.payload("mine.py", 'NAME = "mine"\n')
        keys = {"bf16": KEYS["bf16"], "patched": patch}
        text = matrix_toml("decode", name="queued", head='lease = "6s"', ge=DIFF, keys=keys)
        return self.controller.matrix(text, runs=runs, trial_s=trial_s)

    def follow(self, *words: object) -> subprocess.Popen[str]:
        options = ("--queue", self.url, "--json")
        self.started.append(self.controller.start("matrix", *map(str, words), *options))
        return self.started[-1]

    def work(self, host: str) -> subprocess.Popen[str]:
        options = ("--queue", self.url, "--lost-after", "4", "--until-done")
        self.started.append(self.workers[host].start("worker", *options))
        return self.started[-1]

    def wait_until_deployed(self, host: str, process: subprocess.Popen[str]) -> None:
        for _ in range(1800):
            logs = self.workers[host].folder.glob("runs/.workers/*/*/*/events.jsonl")
            if any('"kind": "deployed"' in log.read_text() for log in logs):
                return
            assert process.poll() is None, process.communicate()[1]
            time.sleep(0.1)
        raise AssertionError("nothing was deployed")

    def wait_for_campaign(self) -> None:
        """Wait until the controller has put its cells on the queue."""
        for _ in range(1800):
            if list(self.controller.folder.glob("runs/2*/queue.json")):
                return
            time.sleep(0.1)
        raise AssertionError("no campaign")

    def run_folder(self) -> Path:
        (folder,) = self.controller.folder.glob("runs/2*")
        return folder

    def check_untouched(self) -> None:
        for host, before in self.before.items():
            assert self.ask(host, EVERYTHING) == before
            assert self.ask(host, f"{LEFTOVERS}true") == ""


@pytest.fixture
def url(server) -> str:
    """A database per test: what one leaves on the queue, workers of another would measure."""
    return server.new_database()


@pytest.fixture
def fleet(lab_hosts, url, tmp_path) -> Iterator[Fleet]:
    text = lab_hosts.inventory.read_text()
    people = {}
    for host, other in (("lab-1", "lab-2"), ("lab-2", "lab-1")):
        lab_hosts.wait_until_active(host)
        folder = tmp_path / host
        folder.mkdir()
        inventory = folder / "inventory.toml"
        alone = re.sub(rf"\[hosts\.{other}\]\n(?:.+\n)*", "", text)
        alone = alone.replace('lab = ["lab-1", "lab-2"]', f'lab = ["{host}"]')
        inventory.write_text(re.sub(r'machine = "[^"]*"', f'machine = "{host}"', alone))
        people[host] = Person(folder, inventory)
    here = tmp_path / "controller"
    here.mkdir()
    before = {host: lab_hosts.run(host, EVERYTHING) for host in people}
    made = Fleet(Person(here, lab_hosts.inventory), people, url, before, lab_hosts.run)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


def said_by(process: subprocess.Popen[str], deadline_s: float = 300.0) -> tuple[str, str]:
    try:
        return process.communicate(timeout=deadline_s)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"it did not end:\n{process.communicate()[1]}")


@pytest.mark.soak
def test_killed_workers_controllers_and_databases_cost_no_cell_and_leave_hosts_as_found(
    fleet, server
):
    controller = fleet.follow(fleet.matrix(runs=1, trial_s=1.0))
    fleet.wait_for_campaign()
    shutil.move(fleet.controller.folder / "payload", fleet.controller.folder / "gone")
    first, second = fleet.work("lab-1"), fleet.work("lab-2")
    fleet.wait_until_deployed("lab-2", second)
    second.kill()
    controller.kill()
    controller.communicate()
    said = [second.communicate()[1]]
    server.stop()
    server.start()

    again = fleet.work("lab-2")
    follower = fleet.follow("--resume", "latest")
    report, told = said_by(follower)
    said += [told, *(said_by(worker)[1] for worker in (first, again))]

    assert follower.returncode == ExitCode.INCONCLUSIVE, told  # no session was bad
    assert (first.returncode, again.returncode) == (ExitCode.OK, ExitCode.OK), said
    cells = json.loads(report)["cells"]
    assert len({tuple(sorted(cell["levels"].items())) for cell in cells}) == 4
    folder = fleet.run_folder()
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    counted = Counter(event["id"] for event in events if event["kind"] == "counted")
    assert len(counted) == 4
    assert set(counted.values()) == {1}
    assert len(list(folder.glob("trials/*/facts.json"))) == 4
    assert len(list(folder.glob("trials/*/events.jsonl"))) == 4
    fleet.check_untouched()
    texts = [*said, *(path.read_text() for path in folder.rglob("*.json*"))]
    assert server.password not in "".join(texts)


def test_a_worker_that_is_told_to_stop_gives_its_cell_back_and_restores_its_host(fleet):
    controller = fleet.follow(fleet.matrix(runs=1, trial_s=3.0))
    fleet.wait_for_campaign()
    first = fleet.work("lab-1")
    fleet.wait_until_deployed("lab-1", first)
    code, said = fleet.workers["lab-1"].interrupt(first)

    assert code == ExitCode.INTERRUPTED, said
    fleet.check_untouched()
    left, told = fleet.controller.interrupt(controller)
    assert left == ExitCode.INTERRUPTED, told
    assert "the workers go on" in told
    shown = fleet.controller.run("matrix", "--status", "latest", "--json")
    assert json.loads(shown.stdout)["counts"] == {"waiting": 4}, shown.stderr

    off = fleet.controller.run("matrix", "--withdraw", "latest")
    assert "4 cell runs are off the queue" in off.stderr
    _, worked = said_by(fleet.work("lab-1"))
    assert "campaign" not in worked


def test_the_password_of_a_queue_is_refused_in_its_address(fleet):
    loud = fleet.url.replace("fleet@", "fleet:hunter2@")

    done = fleet.controller.run("worker", "--queue", loud)

    assert done.returncode == ExitCode.REFUSED
    assert "PGPASSFILE" in done.stderr
    assert "hunter2" not in done.stderr
