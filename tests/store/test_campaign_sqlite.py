"""The embedded queue keeps every promise of a queue, through kills at any moment."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fleetctl.errors import InputError, StoreError
from fleetctl.store.campaign import CellResult, CellRun, RunPhase
from fleetctl.store.campaign_sqlite import SqliteQueue, open_queue
from tests.contracts.cell_queue import CellQueueContract, cell_run, result_of, taken


@dataclass
class OneFile:
    """A queue in a file; a controller that begins again buries the one before."""

    path: Path
    opened: list[SqliteQueue] = field(default_factory=list)

    def open(self, worker: str) -> SqliteQueue:
        del worker
        self.opened.append(SqliteQueue(self.path))
        return self.opened[-1]

    def bury(self, worker: str) -> None:
        queue = self.open(worker)
        queue.begin_again([state.run.id for state in queue.state().runs])


@pytest.fixture
def campaign(tmp_path):
    made = OneFile(tmp_path / "campaign.sqlite")
    yield made
    for queue in made.opened:
        queue.close()


class TestTheContract(CellQueueContract):
    """`SqliteQueue` is held to it."""


def test_beginning_again_gives_failed_runs_and_quarantined_sites_another_chance(campaign):
    queue = campaign.open("w")
    queue.put([cell_run(0), cell_run(1)])
    queue.failed(taken(queue), "not ready")
    queue.quarantine("s", "away")

    queue.begin_again([cell_run(0).id, cell_run(1).id])

    assert {taken(queue).position for _ in range(2)} == {0, 1}
    assert queue.state().quarantined == {}


def test_what_a_killed_controller_had_taken_is_dealt_as_if_nobody_had(campaign):
    queue = campaign.open("w")
    queue.put([cell_run(0), cell_run(1)])
    taken(queue, "s1")

    queue.begin_again([cell_run(0).id, cell_run(1).id])

    assert taken(queue, "s1").position == 0


def test_runs_that_are_not_wanted_any_more_keep_their_results_until_they_are(campaign):
    queue = campaign.open("w")
    queue.put([cell_run(0), cell_run(1)])
    run = taken(queue)
    queue.done(run, result_of(run))

    queue.begin_again([cell_run(1).id])
    assert queue.results() == ()
    assert [state.run.position for state in queue.state().runs] == [1]

    queue.put([cell_run(0)])
    assert queue.results() == (result_of(run),)


def overwritten(path):
    content = bytearray(path.read_bytes())
    content[4096:] = b"x" * (len(content) - 4096)
    path.write_bytes(content)


def read_all(folder):
    with open_queue(folder) as queue:
        queue.state()
        queue.results()


def changed(sql):
    def change(path):
        with closing(sqlite3.connect(path)) as db:
            db.executescript(sql)

    return change


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b"not a database" * 100),
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
        lambda path: path.write_bytes(b""),
        overwritten,
        changed("ALTER TABLE runs DROP COLUMN why;"),
        changed("UPDATE runs SET phase = 'lost';"),
        changed("UPDATE runs SET result = NULL;"),
        changed("UPDATE runs SET result = 'no json';"),
        changed("UPDATE runs SET result = '[1]';"),
        changed("DROP TABLE runs; CREATE TABLE runs (x);"),
    ],
    ids=["garbage", "cut", "empty", "overwritten", "column", "phase", "null", "text", "list", "x"],
)
def test_a_damaged_campaign_is_called_damaged_and_says_where_the_trials_are(tmp_path, damage):
    path = tmp_path / "campaign.sqlite"
    with SqliteQueue(path) as queue:
        queue.put([cell_run(0)])
        run = taken(queue)
        queue.done(run, result_of(run))
    (tmp_path / "trials" / "001").mkdir(parents=True)
    damage(path)

    with pytest.raises(StoreError) as caught:
        read_all(tmp_path)

    assert caught.value.what == f"the campaign in {path} is damaged"
    assert f"are in {tmp_path / 'trials'}" in caught.value.next_step
    assert "free space" not in caught.value.next_step


def test_a_controller_killed_before_its_first_trial_leaves_an_empty_campaign(tmp_path):
    (tmp_path / "campaign.sqlite").touch()

    with open_queue(tmp_path) as queue:
        assert not queue.state().runs


def test_a_full_disk_is_no_damage(campaign):
    queue = campaign.open("w")
    queue._db.execute("PRAGMA max_page_count = 1")

    with pytest.raises(StoreError, match="can't be kept") as caught:
        queue.put([cell_run(i) for i in range(500)])

    assert "free space" in caught.value.next_step


def test_a_run_without_a_campaign_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no campaign"):
        open_queue(tmp_path)


def test_what_another_version_wrote_is_refused_and_not_guessed():
    with pytest.raises(InputError, match="no CellRun"):
        CellRun.from_json({"id": "x", "colour": "red"})
    with pytest.raises(InputError, match="no CellResult"):
        CellResult.from_json({"id": "x"})


def test_values_survive_json():
    run = cell_run(3)

    assert CellRun.from_json(run.to_json()) == run
    assert CellResult.from_json(result_of(run).to_json()) == result_of(run)


CONTROLLER = """
import sys
from pathlib import Path
from fleetctl.store.campaign_sqlite import SqliteQueue
from tests.contracts.cell_queue import cell_run, result_of
queue = SqliteQueue(Path(sys.argv[1]))
queue.begin_again([cell_run(i).id for i in range(60)])
queue.put([cell_run(i) for i in range(60)])
while run := queue.take("s", block="gpu=h200", worker="w"):
    if queue.done(run, result_of(run)):
        print(run.id, flush=True)
"""


def test_controllers_killed_at_any_moment_count_every_run_exactly_once(tmp_path):
    dice = random.Random(7)
    path = tmp_path / "campaign.sqlite"
    said: list[str] = []
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", CONTROLLER, str(path)], stdout=subprocess.PIPE, text=True
        )
        said.append(process.stdout.readline().strip())
        time.sleep(dice.random() / 50)
        os.kill(process.pid, signal.SIGKILL)
        said += process.communicate()[0].split()
    with SqliteQueue(path) as queue:
        queue.begin_again([cell_run(i).id for i in range(60)])
        assert not queue.state().in_phase(RunPhase.TAKEN)
        while run := queue.take("s", block="gpu=h200", worker="w"):
            assert queue.done(run, result_of(run))
            said.append(run.id)
        assert [result.id for result in queue.results()] == [cell_run(i).id for i in range(60)]

    said = [line for line in said if line]
    assert len(said) == len(set(said))
