"""A matrix whose cells are measured by workers elsewhere: put it on the queue, and follow it."""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.clock import Clock
from fleetctl.errors import ExitCode, FleetError, Interrupted
from fleetctl.queue.campaigns import Campaigns
from fleetctl.queue.content import Content, StoredFile
from fleetctl.queue.opening import Joined
from fleetctl.spec.inventory import Inventory
from fleetctl.store.campaign import CampaignState, RunPhase, RunState
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.as_found import take_over
from fleetctl.workflow.campaign import CampaignEnd, unfinished
from fleetctl.workflow.campaign_status import first_line
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.fleet_run import open_folder
from fleetctl.workflow.matrix import AskedMatrix, cell_runs, read_matrix
from fleetctl.workflow.matrix_run import own_spec
from fleetctl.workflow.worker_courier import CALIBRATION, EVENTS, SPEC, checked_path, owner_of

QUEUE_FILE = "queue.json"
_LOOK_EVERY_S = 1.0


def queue_of(folder: RunFolder) -> str | None:
    """Return the address of the queue that a run's cells are on; None where they are on none."""
    return str(folder.read_table(QUEUE_FILE)["address"]) if folder.has(QUEUE_FILE) else None


def put_matrix(
    edges: Edges,
    inventory: Inventory,
    asked: AskedMatrix,
    joined: Joined,
    address: str,
    *,
    shards: int = 1,
) -> RunFolder:
    """Put every run of every cell on a queue; hosts are not looked at.

    Args:
        edges: the outside world.
        inventory: says which hosts are equal; the workers reach them by inventories of their own.
        asked: the matrix.
        joined: the queue.
        address: of the queue, for the run's folder.
        shards: over how many client processes, on any workers, a trial's sessions are dealt out.

    Raises:
        QueueError: the queue can't be used.
    """
    runs = cell_runs(asked, inventory)
    folder = open_folder(edges, asked.job, ())
    folder.write_json(QUEUE_FILE, {"address": address, "shards": shards})
    _announce(folder, asked, joined)
    joined.campaign(folder.run_id).put(runs)
    edges.talk.say(f"{len(asked.cells)} cells, {len(runs)} runs wait for workers on {address}")
    return folder


def go_on_with(
    edges: Edges,
    inventory: Inventory,
    folder: RunFolder,
    asked: AskedMatrix | None,
    joined: Joined,
) -> tuple[AskedMatrix, tuple[str, ...]]:
    """Attach to a run on a queue again: what failed gets another chance, what is done stays.

    Args:
        edges: the outside world.
        inventory: as it is now.
        folder: of the run.
        asked: the matrix as it is now; None takes the run's own copy.
        joined: the queue.

    Returns:
        The matrix, and the ids of runs that are done already.
    """
    asked = asked or read_matrix(own_spec(folder))
    runs = cell_runs(asked, inventory)
    queue = joined.campaign(folder.run_id)
    _announce(folder, asked, joined)
    queue.begin_again(run.id for run in runs)
    queue.put(runs)
    done = tuple(one.run.id for one in queue.state().in_phase(RunPhase.DONE))
    folder.record(edges.clock.now_s(), "resumed", reused=len(done), runs=len(runs))
    edges.talk.say(f"{folder.run_id}: {len(done)} of {len(runs)} runs are measured already")
    return asked, done


def follow(
    edges: Edges,
    folder: RunFolder,
    joined: Joined,
    *,
    reused: Sequence[str] = (),
    fails_fast: bool = False,
) -> CampaignEnd:
    """Say how a campaign goes on until it is over, and bring home what it measured.

    Raises:
        Interrupted: told to stop; the workers go on.
        QueueError: the queue can't be used any more; the workers go on as far as they can.
    """
    queue, campaigns = joined.campaign(folder.run_id), Campaigns(joined.database)
    home = _Homecoming(folder, Content(joined.database), edges.clock)
    told: set[str] = set()
    try:
        while True:
            state = queue.state()
            for one in state.in_phase(RunPhase.DONE):
                home.bring(one)
            for line in troubles(state):
                if line not in told:
                    edges.talk.say(line)
                told.add(line)
            edges.talk.progress(folder.run_id, _fares(state))
            if fails_fast and state.in_phase(RunPhase.FAILED):
                queue.withdraw()
            if not campaigns.is_open(folder.run_id):
                # also what a worker gives back after the withdrawal waits no more
                queue.withdraw()
            if state.is_over:
                break
            edges.clock.sleep(_LOOK_EVERY_S)
    except Interrupted as error:
        error.why = f"{error.why}; the workers go on with {folder.run_id}"
        error.next_step = f"`fleetctl matrix --resume {folder.run_id}` follows it again"
        raise
    home.bring_calibration()
    missing = next(iter(unfinished(state, folder.run_id)), None)
    if not campaigns.is_open(folder.run_id):
        missing = missing or _withdrawn(folder.run_id)
    campaigns.close(folder.run_id)
    return CampaignEnd(folder, state, queue.results(), tuple(reused), missing)


def withdraw(folder: RunFolder, joined: Joined) -> int:
    """Take what waits off the queue; what is under way ends. Return how many runs had waited."""
    Campaigns(joined.database).close(folder.run_id)
    return joined.campaign(folder.run_id).withdraw()


def _withdrawn(run_id: str) -> FleetError:
    return FleetError(
        "the matrix was withdrawn from its queue",
        why="somebody asked for it with --withdraw",
        next_step=f"`fleetctl matrix --resume {run_id}` puts back what is missing",
        exit_code=ExitCode.FAILED_RESTORED,
    )


def _announce(folder: RunFolder, asked: AskedMatrix, joined: Joined) -> None:
    """Send the spec and its payload, then let the workers know of them."""
    content = Content(joined.database)
    files = {f"{SPEC}{name}": data for name, data in asked.job.files.items()}
    content.attach(folder.run_id, files)
    known = content.files(folder.run_id)
    head = {
        "run": {**folder.head(), "spec": asked.path.name},
        "files": {path: known[path].sha256 for path in files},
        "shards": folder.read_table(QUEUE_FILE)["shards"],
    }
    Campaigns(joined.database).announce(folder.run_id, head)


def troubles(state: CampaignState) -> list[str]:
    """Return what went wrong on which site, once for cells that fail alike, and what is set aside.

    Runs that were measured later are not told.
    """
    left = state.in_phase(RunPhase.WAITING, RunPhase.TAKEN, RunPhase.FAILED)
    told = [f"{one.site}: {first_line(one.why)}" for one in left if one.why and one.site]
    return list(dict.fromkeys(told)) + [
        f"{site} is quarantined: {first_line(why)}" for site, why in state.quarantined.items()
    ]


def _fares(state: CampaignState) -> str:
    count = {phase: len(state.in_phase(phase)) for phase in RunPhase}
    told = f"{count[RunPhase.DONE]} of {len(state.runs)} runs done"
    told += f", {count[RunPhase.TAKEN]} under way, {count[RunPhase.WAITING]} wait"
    return told + (f", {count[RunPhase.FAILED]} failed" if count[RunPhase.FAILED] else "")


class _Homecoming:
    """Brings what workers measured into the run's folder, each attempt once."""

    def __init__(self, folder: RunFolder, content: Content, clock: Clock) -> None:
        self._folder = folder
        self._content = content
        self._clock = clock
        self._home = {str(e.facts.get("id")) for e in folder.events() if e.kind == "counted"}

    def bring(self, one: RunState) -> None:
        if one.run.id in self._home:
            return
        for path, file in self._content.files(owner_of(self._folder.run_id, one.run)).items():
            self._keep(path, file)
            trial, _, name = path.rpartition("/")
            if name == EVENTS:
                take_over(self._folder, RunFolder(self._folder.path / trial).events())
        self._home.add(one.run.id)
        facts = {"cell": one.run.cell, "run": one.run.run, "id": one.run.id, "worker": one.worker}
        self._folder.record(self._clock.now_s(), "counted", site=one.site, **facts)

    def bring_calibration(self) -> None:
        """Keep what all cells were calibrated by."""
        file = self._content.files(self._folder.run_id).get(CALIBRATION)
        if file is not None:
            self._keep(CALIBRATION, file)

    def _keep(self, path: str, file: StoredFile) -> None:
        """Write a file, or where it lies."""
        checked_path(path)
        if file.place:
            self._folder.write_json(f"{path}.elsewhere.json", vars(file))
        else:
            self._folder.write(path, self._content.bytes_of(file, path))
