"""A campaign on sites that measure at once, except where a test says what happens."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

from fleetctl.clock import SystemClock
from fleetctl.store.campaign import CellRun
from fleetctl.store.campaign_sqlite import SqliteQueue
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow import campaign_worker
from fleetctl.workflow.campaign import Campaign
from fleetctl.workflow.matrix import cell_runs
from fleetctl.workflow.site import named_sites
from fleetctl.workflow.stopping import Stop, StoppableClock
from tests.workflow.matrices import asked, fleet, result_of

DEADLINE_S = 20.0


@dataclass
class FastClock:
    """A clock whose sleepers wake at once, each a second later."""

    now: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def now_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now

    def sleep(self, duration_s: float) -> None:
        with self.lock:
            self.now += duration_s
        SystemClock().sleep(0.001)


@dataclass(frozen=True)
class FastStoppableClock(StoppableClock):
    """Hears an end that was asked for, and wakes at once."""

    def sleep(self, duration_s: float) -> None:
        self.stop.check()
        self.inner.sleep(duration_s)


@dataclass
class Fleet:
    """Sites that measure at once, except where a test says what happens.

    `opening` and `measuring` are asked with site and run; they raise, or let it go on. What
    `measuring` returns is what the trial's facts are beside sound ones.
    """

    opening: Callable[[str], None] = lambda _site: None
    measuring: Callable[[str, CellRun], dict[str, object] | None] = lambda _site, _run: None
    leaving: Callable[[str], None] = lambda _site: None
    measured: list[tuple[str, str]] = field(default_factory=list)
    held: Counter[str] = field(default_factory=Counter)
    at_once: int = 0
    most_at_once: int = 0

    @contextmanager
    def held_site(self, _edges, _inventory, _folder, _job, site) -> Iterator[SimpleNamespace]:
        self.opening(site)
        self.held[site] += 1
        try:
            yield SimpleNamespace(
                arm="", keepers=[], measure=lambda run, _job: self._run(site, run)
            )
        finally:
            self.held[site] -= 1
            self.leaving(site)

    def _run(self, site, run):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            more = self.measuring(site, run) or {}
            # long enough for the others to get a run of their own
            SystemClock().sleep(0.02)
        finally:
            self.at_once -= 1
        self.measured.append((site, run.id))
        return result_of(run, site, **more)


@dataclass
class Bench:
    folder: RunFolder
    queue: SqliteQueue
    edges: SimpleNamespace
    said: list[str]
    tmp_path: object

    def run(self, world: Fleet, inventory=None, *, fails_fast=False, rules="", runs=2):
        matrix = asked(self.tmp_path, rules=rules, runs=runs)
        inventory = inventory or fleet()
        self.queue.put(cell_runs(matrix, inventory))
        sites = named_sites(inventory, "fleet")
        campaign = Campaign(
            self.edges, inventory, self.folder, matrix, self.queue, sites, fails_fast
        )
        self.monkeypatch.setattr(campaign_worker, "held_site", world.held_site)
        ended = []
        thread = threading.Thread(target=lambda: ended.append(campaign.run(())), daemon=True)
        thread.start()
        thread.join(DEADLINE_S)
        assert ended, "the campaign never ended"
        assert not +world.held, "a site is still held"
        return ended[0]


@contextmanager
def a_bench(tmp_path, monkeypatch) -> Iterator[Bench]:
    """Yield a bench with an empty queue of its own."""
    said: list[str] = []
    stop = Stop()
    edges = SimpleNamespace(
        talk=SimpleNamespace(say=said.append, progress=lambda *_: None),
        clock=FastStoppableClock(FastClock(), stop),
        stop=stop,
        holder="ann@desk",
    )
    folder = RunFolder.create(tmp_path, "r", {"kind": "matrix"})
    with SqliteQueue(folder.path / "campaign.sqlite") as queue:
        made = Bench(folder, queue, edges, said, tmp_path)
        made.monkeypatch = monkeypatch
        yield made
