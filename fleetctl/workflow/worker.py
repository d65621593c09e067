"""A worker: takes cells of any campaign on the queue to the hosts of its inventory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetctl.errors import ExitCode, FleetError, InputError, Interrupted, StoreError
from fleetctl.queue.campaigns import Campaigns, OpenCampaign
from fleetctl.queue.content import Content
from fleetctl.queue.opening import Joined
from fleetctl.spec.experiment import ToolcallSpec
from fleetctl.spec.inventory import Inventory
from fleetctl.store.campaign import RunPhase
from fleetctl.workflow.campaign_turns import Progress, Turns
from fleetctl.workflow.campaign_worker import SiteWorker, Surroundings
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.hopeless import Tries
from fleetctl.workflow.matrix import AskedMatrix, read_matrix
from fleetctl.workflow.matrix_run import check_programs
from fleetctl.workflow.site import NamedSite, named_sites
from fleetctl.workflow.telling import gravest_of, in_words_of
from fleetctl.workflow.worker_courier import Courier, fetch_campaign
from fleetctl.workflow.worker_shards import ShardCrew, ShardedDriver

_LOOK_EVERY_S = 1.0


@dataclass(frozen=True)
class Known:
    """A campaign that was made ready on this machine.

    Attributes:
        edges: whose load is spread over workers where the campaign asks for that.
        tries: of its program from this machine, where it may be missing.
    """

    edges: Edges
    asked: AskedMatrix
    queue: Courier
    progress: dict[str, Progress]
    tries: Tries


@dataclass
class Worker:
    """Hosts of one inventory at work for the campaigns of a queue.

    A machine of the fleet works for one campaign at a time, and for one worker: this one has
    claimed it. Whoever works on a host holds its lease as well.

    Attributes:
        root: where campaigns are kept on this machine's disk.
        shards_at_once: most shards of trials' load that this machine drives at a time.
        errors: of hosts and of this machine.
    """

    edges: Edges
    inventory: Inventory
    joined: Joined
    root: Path
    shards_at_once: int = 1
    errors: list[FleetError] = field(default_factory=list)
    _known: dict[str, Known | None] = field(default_factory=dict)
    _at_work: dict[str, list[threading.Thread]] = field(default_factory=dict)

    def run(self, *, until_done: bool) -> None:
        """Work until told to stop; with `until_done`, until no campaign has anything left.

        Raises:
            FleetError: the gravest thing that went wrong, after every host was restored.
        """
        campaigns = Campaigns(self.joined.database)
        crew = ShardCrew(
            self.edges,
            self.inventory,
            self.joined,
            self.root,
            self.shards_at_once,
            self._asked,
            self._sites,
        )
        try:
            while self._step(campaigns) or not until_done:
                crew.step()
                self.edges.clock.sleep(_LOOK_EVERY_S)
        except Interrupted as error:
            error.next_step = "start it again; cells that it gave back go on elsewhere meanwhile"
            self.errors.append(error)
        except FleetError as error:
            self._failed(error, ends_all=True)
        finally:
            self._wait(campaigns)
            crew.wait()
        if self.errors:
            raise gravest_of(self.edges.talk, self.errors)

    def _step(self, campaigns: Campaigns) -> bool:
        """Give free machines something to do; False when nothing is left for anybody."""
        self._reap(campaigns)
        is_left = False
        for found in campaigns.unfinished():
            known = self._serve(found)
            if known is not None and not known.tries.given_up:
                self._start(campaigns, found, known)
            is_left |= known is None or not known.tries.given_up
        return is_left or bool(self._at_work)

    def _asked(self, campaign: str) -> AskedMatrix | None:
        """Return a campaign's matrix as it is now."""
        known = [one for key, one in self._known.items() if key.split(" ", 1)[0] == campaign]
        return known[-1].asked if known and known[-1] is not None else None

    def _sites(self) -> list[str]:
        """Return the sites of all campaigns that are known here."""
        known = [one for one in self._known.values() if one is not None]
        targets = {one.asked.job.target for one in known}
        return [s.name for target in targets for s in named_sites(self.inventory, target)]

    def _serve(self, found: OpenCampaign) -> Known | None:
        """Return a campaign made ready on this machine; None where it can't be served."""
        key = f"{found.campaign} {sorted(found.head.get('files', {}).items())}"
        if key not in self._known:
            try:
                self._known[key] = self._fetched(found)
            except InputError as error:
                self.edges.talk.say(f"campaign {found.campaign} is left to others: {error}")
                self._known[key] = None
        return self._known[key]

    def _fetched(self, found: OpenCampaign) -> Known:
        content = Content(self.joined.database)
        folder, spec = fetch_campaign(content, found, self.root)
        asked = read_matrix(spec)
        named_sites(self.inventory, asked.job.target)
        check_programs(asked)
        queue = self.joined.campaign(found.campaign)
        self.edges.talk.say(f"campaign {found.campaign}: {asked.job.purpose}")
        courier = Courier(queue, content, folder, self.edges.clock, self.joined.name)
        shards = int(found.head.get("shards", 1))
        edges = self.edges
        if shards > 1 and isinstance(asked.job.workload, ToolcallSpec):
            driver = ShardedDriver(self.joined, shards, self.edges.clock)
            edges = replace(self.edges, drive=driver)
        tries = Tries(folder.path, "start this worker again")
        return Known(edges, asked, courier, {}, tries)

    def _start(self, campaigns: Campaigns, found: OpenCampaign, known: Known) -> None:
        sites = named_sites(self.inventory, known.asked.job.target)
        for machine in dict.fromkeys(site.machine for site in sites):
            here = [s for s in sites if s.machine == machine and s.block in found.blocks]
            if not here or machine in self._at_work or not self._is_wanted(known, here):
                continue
            if campaigns.claim(machine, self.joined.engine.worker):
                self._at_work[machine] = list(self._threads(known, here, sites))
                for thread in self._at_work[machine]:
                    thread.start()

    def _is_wanted(self, known: Known, sites: Iterable[NamedSite]) -> bool:
        """Whether something waits for one of the sites, and it is not set aside."""
        state = known.queue.state()
        blocks = {site.block for site in sites if site.name not in state.quarantined}
        return any(state.in_phase(RunPhase.WAITING, block=block) for block in blocks)

    def _threads(
        self, known: Known, here: Iterable[NamedSite], sites: tuple[NamedSite, ...]
    ) -> Iterable[threading.Thread]:
        turns = Turns(known.asked.matrix.matrix.per_machine)
        for site in here:
            progress = known.progress.setdefault(site.block, Progress(self.edges.clock))
            around = Surroundings(
                known.edges,
                self.inventory,
                known.queue.folder,
                known.asked,
                known.queue,
                turns,
                progress,
                self._failed,
                known.tries,
            )
            has_others = sum(other.block == site.block for other in sites) > 1
            work = SiteWorker(around, site, has_others=has_others).run
            yield threading.Thread(target=self._guarded, args=(work,), name=site.name)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except FleetError as error:
            self._failed(error, ends_all=True)
        except OSError as error:
            self._failed(_machine_failed(error), ends_all=True)
        except BaseException:
            self.edges.stop.ask("a bug in fleetctl")
            raise

    def _failed(self, error: FleetError, *, ends_all: bool) -> None:
        self.errors.append(error)
        if ends_all:
            self.edges.stop.ask(error.what)

    def _reap(self, campaigns: Campaigns) -> None:
        """Let go of machines whose sites have nothing left to do."""
        for machine, threads in list(self._at_work.items()):
            if not any(thread.is_alive() for thread in threads):
                del self._at_work[machine]
                campaigns.release(machine, self.joined.engine.worker)

    def _wait(self, campaigns: Campaigns) -> None:
        """Wait until every host is as it was found."""
        for threads in self._at_work.values():
            for thread in threads:
                thread.join()
        self._reap(campaigns)


def _machine_failed(error: OSError) -> StoreError:
    return StoreError(
        "this machine could not go on with its cells",
        why=in_words_of(error),
        next_step="see that its disk has room, then start the worker again",
        exit_code=ExitCode.FAILED_RESTORED,
    )
