"""A campaign: every site takes cell runs of its block until none is left; hosts come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from fleetctl.errors import ExitCode, FleetError, Interrupted, StoreError
from fleetctl.spec.inventory import Inventory
from fleetctl.store.campaign import CampaignState, CellQueue, CellResult, Place
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.campaign_turns import Progress, Turns
from fleetctl.workflow.campaign_worker import SiteWorker, Surroundings
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.hopeless import Tries
from fleetctl.workflow.matrix import AskedMatrix
from fleetctl.workflow.site import NamedSite
from fleetctl.workflow.telling import gravity, in_words_of


@dataclass(frozen=True)
class CampaignEnd:
    """How a campaign ended; its hosts are as found, except those that `errors` name.

    Attributes:
        results: what was counted.
        reused: ids of cell runs that an earlier controller had measured.
        error: the gravest thing that went wrong; None when every run was counted.
    """

    folder: RunFolder
    state: CampaignState
    results: tuple[CellResult, ...]
    reused: tuple[str, ...]
    error: FleetError | None


@dataclass
class Campaign:
    """What all sites of a campaign share, and the sites at work.

    Attributes:
        fails_fast: a cell that fails ends the campaign.
        errors: of sites and of this machine.
    """

    edges: Edges
    inventory: Inventory
    folder: RunFolder
    asked: AskedMatrix
    queue: CellQueue
    sites: Sequence[NamedSite]
    fails_fast: bool = False
    errors: list[FleetError] = field(default_factory=list)

    def run(self, reused: Sequence[str]) -> CampaignEnd:
        """Let every site work until nothing is left to do; all hosts are restored then."""
        rules = self.asked.matrix.matrix
        machines = {site.machine: Turns(rules.per_machine) for site in self.sites}
        blocks = {site.block: Progress(self.edges.clock) for site in self.sites}
        tries = Tries(self.folder.path, f"`fleetctl matrix --resume {self.folder.run_id}`")
        workers = [
            SiteWorker(
                Surroundings(
                    self.edges,
                    self.inventory,
                    self.folder,
                    self.asked,
                    self.queue,
                    machines[site.machine],
                    blocks[site.block],
                    self._failed,
                    tries,
                    self.fails_fast,
                ),
                site,
                has_others=self._place(site).among > 1,
                place=self._place(site),
            )
            for site in self.sites
        ]
        self._work([worker.run for worker in workers])
        state = self.queue.state()
        error = self._gravest(state)
        return CampaignEnd(self.folder, state, self.queue.results(), tuple(reused), error)

    def _place(self, site: NamedSite) -> Place:
        """Return where a site stands among those of its block, as `cell_runs` counts them."""
        block = [other.name for other in self.sites if other.block == site.block]
        return Place(block.index(site.name), len(block))

    def _failed(self, error: FleetError, *, ends_all: bool) -> None:
        """Remember an error; one that nobody can go on with ends the work everywhere."""
        if error.exit_code is ExitCode.REFUSED:
            # hosts were changed, and are as found again
            error.exit_code = ExitCode.FAILED_RESTORED
        self.errors.append(error)
        if ends_all:
            self.edges.stop.ask(error.what)

    def _work(self, jobs: Sequence[Callable[[], None]]) -> None:
        with ThreadPoolExecutor(max(len(jobs), 1), thread_name_prefix="site") as pool:
            futures = [pool.submit(self._guarded, job) for job in jobs]
            _wait_in_slices(futures)
        for future in futures:
            future.result()

    def _guarded(self, job: Callable[[], None]) -> None:
        try:
            job()
        except FleetError as error:
            self._failed(error, ends_all=True)
        except OSError as error:
            self._failed(_machine_failed(error, self.folder), ends_all=True)
        except BaseException:
            self.edges.stop.ask("a bug in fleetctl")
            raise

    def _gravest(self, state: CampaignState) -> FleetError | None:
        """Return what to end with: an unrestored host outweighs a failed cell."""
        if self.edges.stop.is_asked and not self.errors:
            return _interrupted(self.edges, self.folder)
        errors = [*self.errors, *unfinished(state, self.folder.run_id)]
        return max(errors, key=lambda error: (gravity(error), -errors.index(error)), default=None)


def _interrupted(edges: Edges, folder: RunFolder) -> FleetError:
    try:
        edges.stop.check()
    except Interrupted as error:
        error.next_step = f"`fleetctl matrix --resume {folder.run_id}` goes on"
        return error
    raise AssertionError("an end was asked for")


def unfinished(state: CampaignState, run_id: str) -> list[FleetError]:
    """Return errors for runs that brought no result; the hosts are as found all the same."""
    failed = [one for one in state.runs if one.phase == "failed"]
    left = [one for one in state.runs if one.phase in ("waiting", "taken")]
    found = []
    for runs, what in ((failed, "could not be measured"), (left, "were not measured")):
        if runs:
            cells = list(dict.fromkeys(one.run.cell for one in runs))
            more = len(cells) - 1
            found.append(
                FleetError(
                    f"{len(runs)} of {len(state.runs)} cell runs {what}",
                    why=next((one.why for one in runs if one.why), "the campaign ended before")
                    + f" ({cells[0]}{f' and {more} more' if more else ''})",
                    next_step=f"`fleetctl matrix --resume {run_id}` makes what is missing",
                    exit_code=ExitCode.FAILED_RESTORED,
                )
            )
    return found


def _wait_in_slices(futures: Sequence[Future[None]]) -> None:
    """Wait for all futures; in slices, so that the main thread hears signals."""
    pending = set(futures)
    while pending:
        pending = wait(pending, timeout=0.2).not_done


def _machine_failed(error: OSError, folder: RunFolder) -> StoreError:
    return StoreError(
        "this machine could not go on with the campaign",
        why=in_words_of(error),
        next_step=f"see that its disk has room, then `fleetctl matrix --resume {folder.run_id}`",
        exit_code=ExitCode.FAILED_RESTORED,
    )
