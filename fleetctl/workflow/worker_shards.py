"""One trial's load by several workers: offer the shards and merge them; or drive some."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fleetctl.clock import Clock
from fleetctl.errors import FleetError, InputError, Interrupted
from fleetctl.queue.content import MOST_BYTES, Content
from fleetctl.queue.opening import Joined
from fleetctl.queue.shards import Shards, ShardState, ShardTask
from fleetctl.serving.load import OnOutcome, TrialPlan
from fleetctl.serving.shard import (
    LostShard,
    Part,
    from_bytes,
    local_start_s,
    merged,
    run_shard,
    to_bytes,
)
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import TranscriptFolder
from fleetctl.spec.experiment import ToolcallSpec
from fleetctl.spec.inventory import Inventory
from fleetctl.trial.scenario import Calibration
from fleetctl.trial.summary import TrialResult
from fleetctl.workflow.campaign_site import reached_site
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.matrix import AskedMatrix
from fleetctl.workflow.site import Site, find_site
from fleetctl.workflow.workloads import toolcall_of

RESULT = "result.json.gz"
START_PATIENCE_S = 600.0
_LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class ShardedDriver:
    """A `Driver` that lets workers of the queue put the load on the service together.

    Attributes:
        shards: in how many parts a trial's sessions are dealt out.
    """

    joined: Joined
    shards: int
    clock: Clock

    def __call__(
        self,
        plan: TrialPlan,
        *,
        store: TranscriptFolder,
        on_outcome: OnOutcome,
        is_stopped: Callable[[], bool],
    ) -> TrialResult:
        """Offer the shards, let them begin together, and merge what they bring.

        Raises:
            Interrupted: `is_stopped` said so.
            QueueError: the queue can't be used.
        """
        del on_outcome  # outcomes come home with the results, not one by one
        offered = Shards(self.joined.database, self.joined.engine.worker)
        count = min(self.shards, plan.workload.sessions)
        trial = f"{plan.labels['run']}/{plan.labels['trial']}"
        offered.offer(trial, [_task(plan, Part(shard, count)) for shard in range(count)])
        try:
            states = self._wait(offered, trial, is_stopped)
            return self._merge(plan, trial, states, store)
        finally:
            offered.end(trial)

    def _wait(
        self, offered: Shards, trial: str, is_stopped: Callable[[], bool]
    ) -> tuple[ShardState, ...]:
        """Wait until every shard is done, or one is lost and the others have been told."""
        give_up_s = self.clock.monotonic_s() + START_PATIENCE_S
        while True:
            if is_stopped():
                offered.give_up(trial, "the trial was stopped")
                raise Interrupted(
                    "the trial was stopped",
                    why="an end was asked for",
                    next_step="it is made again when the campaign goes on",
                )
            offered.start_if_ready(trial)
            states = offered.states(trial)
            if any(state.fault for state in states) or not states:
                return states
            if all(state.is_done for state in states):
                return states
            waiting = [state for state in states if not state.is_ready]
            if waiting and self.clock.monotonic_s() > give_up_s:
                offered.give_up(trial, f"{len(waiting)} of {len(states)} shards never got ready")
            self.clock.sleep(_LOOK_EVERY_S)

    def _merge(
        self,
        plan: TrialPlan,
        trial: str,
        states: tuple[ShardState, ...],
        store: TranscriptFolder,
    ) -> TrialResult:
        content = Content(self.joined.database)
        results, lost = [], []
        for state in states:
            part = Part(state.shard, len(states))
            files = content.files(f"{trial}#{state.shard}")
            if not state.is_done or RESULT not in files:
                lost.append(LostShard(part, state.fault or "others were lost"))
                continue
            results.append(from_bytes(content.bytes_of(files.pop(RESULT), RESULT)))
            for path, file in files.items():
                store.path.mkdir(parents=True, exist_ok=True)
                (store.path / Path(path).name).write_bytes(content.bytes_of(file, path))
        return merged(plan, results, lost)


def _task(plan: TrialPlan, part: Part) -> dict[str, Any]:
    """Return all that another worker needs beside the campaign's files to make the same plan."""
    return {
        "campaign": plan.labels["run"],
        "cell": plan.labels["arm"],
        "site": plan.labels["host"],
        "labels": plan.labels,
        "root_seed": plan.root_seed,
        "run_index": plan.run_index,
        "calibration": vars(plan.calibration),
        "shards": part.shards,
    }


@dataclass(frozen=True)
class _QueueBarrier:
    """The other shards of a trial, seen through the queue; satisfies `Barrier`."""

    shards: Shards
    task: ShardTask
    is_stopped: Callable[[], bool]

    def ready(self) -> None:
        self.shards.ready(self.task)

    def start_at_s(self) -> float | None:
        if self.shards.starts_in_s(self.task) is None:
            return None
        start_s, _ = local_start_s(lambda: self.shards.starts_in_s(self.task) or 0.0)
        return start_s

    def is_off(self) -> bool:
        return self.is_stopped() or not self.shards.is_on(self.task)


@dataclass
class ShardCrew:
    """Client processes of this machine for the trials of others, and for its own.

    Attributes:
        at_once: most shards driven at a time: one a core.
        asked_for: returns a campaign's matrix, by its id; None where it is not known here.
        sites: returns the names of the sites that can be reached from here.
    """

    edges: Edges
    inventory: Inventory
    joined: Joined
    root: Path
    at_once: int
    asked_for: Callable[[str], AskedMatrix | None]
    sites: Callable[[], list[str]]
    _threads: list[threading.Thread] = field(default_factory=list)

    def step(self) -> None:
        """Take shards while there are some and cores are free."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        shards = Shards(self.joined.database, self.joined.engine.worker)
        while len(self._threads) < self.at_once:
            task = shards.take(self.sites())
            if task is None:
                return
            thread = threading.Thread(target=self._drive, args=(shards, task), name=task.trial)
            self._threads.append(thread)
            thread.start()

    def wait(self) -> None:
        """Wait until nothing is driven any more."""
        for thread in self._threads:
            thread.join()

    def _drive(self, shards: Shards, task: ShardTask) -> None:
        """Drive one shard, and say how it ended; a shard that is lost loses the trial."""
        try:
            asked = self.asked_for(str(task.task["campaign"]))
            if asked is None:
                shards.fault(task, f"{self.joined.name} does not know the campaign")
                return
            with _folder(self.root, task) as folder, self._way_to(asked, task) as target:
                self._drive_to(shards, task, _plan(asked, task, target), folder)
        except FleetError as error:
            shards.fault(task, str(error))

    def _drive_to(self, shards: Shards, task: ShardTask, plan: TrialPlan, folder: Path) -> None:
        part = Part(task.shard, int(task.task["shards"]))
        barrier = _QueueBarrier(shards, task, lambda: self.edges.stop.is_asked)
        store = TranscriptFolder(folder)
        result = run_shard(plan, part, store, barrier, lambda outcome: None)
        if isinstance(result, LostShard):
            shards.fault(task, result.why)
            return
        content, owner = Content(self.joined.database), f"{task.trial}#{task.shard}"
        for file in store.files():
            if file.stat().st_size > MOST_BYTES:
                shards.fault(task, f"its transcripts are larger than {MOST_BYTES} bytes")
                return
            content.attach(owner, {file.name: file.read_bytes()})
        content.attach(owner, {RESULT: to_bytes(result)})
        shards.done(task)

    @contextmanager
    def _way_to(self, asked: AskedMatrix, task: ShardTask) -> Iterator[Target]:
        """Yield this machine's way to the service that is measured."""
        named = find_site(self.inventory, asked.job.target, str(task.task["site"]))
        with ExitStack() as stack:
            site: Site = stack.enter_context(reached_site(self.edges, self.inventory, named))
            host, port = site.address
            way = site.entry.transport.forward(port, address=host)
            address = stack.enter_context(way)
            yield Target(f"http://{address[0]}:{address[1]}", site.entry.host.model)


@contextmanager
def _folder(root: Path, task: ShardTask) -> Iterator[Path]:
    """Yield a folder for a shard's transcripts, gone when they have been sent."""
    folder = root / "shards" / task.trial.replace("/", "_") / str(task.shard)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _plan(asked: AskedMatrix, task: ShardTask, target: Target) -> TrialPlan:
    said = task.task
    workload = asked.cell(str(said["cell"])).workload
    if not isinstance(workload, ToolcallSpec):
        raise InputError(
            "only a toolcall workload can be spread over workers",
            why="a program that drives the load itself runs once",
            next_step="leave out --shards",
        )
    plan = TrialPlan(
        workload=toolcall_of(workload),
        target=target,
        root_seed=int(said["root_seed"]),
        run_index=int(said["run_index"]),
        calibration=Calibration(**said["calibration"]),
    )
    return replace(plan, labels=dict(said["labels"]))
