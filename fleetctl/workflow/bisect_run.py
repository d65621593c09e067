"""What bisecting and minimising share: the run from end to end, its folder, and resuming."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from fleetctl.errors import ExitCode, FleetError, InputError, Interrupted, StoreError
from fleetctl.report.numbers import count
from fleetctl.spec.bisect import Bisect, Minimize
from fleetctl.spec.inventory import Inventory
from fleetctl.store.run_folder import RunFolder, list_runs, new_run_id
from fleetctl.store.search_log import SearchLog
from fleetctl.workflow.bisect_loop import BROKEN, S, Searching
from fleetctl.workflow.bisect_series import Content
from fleetctl.workflow.campaign_site import HeldSite
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.held import refuse_held, refuse_undecided
from fleetctl.workflow.hopeless import check_startable
from fleetctl.workflow.job import Job
from fleetctl.workflow.matrix_run import settle
from fleetctl.workflow.reach import reach
from fleetctl.workflow.site import NamedSite, named_sites

R = TypeVar("R")


class AskedSearch(Protocol):
    """A bisection or a minimisation, read and checked."""

    @property
    def spec(self) -> Bisect | Minimize:
        """What was asked for."""
        ...

    @property
    def job(self) -> Job:
        """What each of its runs does."""
        ...


A = TypeVar("A", bound=AskedSearch)


@dataclass(frozen=True)
class Outside:
    """Where a search runs.

    Attributes:
        resume: go on with the newest unfinished search of this very spec.
    """

    edges: Edges
    inventory: Inventory
    resume: bool


def run_search(
    outside: Outside,
    asked: A,
    begin: Callable[[RunFolder, HeldSite, A], S],
    report: Callable[[A, S, RunFolder], tuple[R, str]],
) -> R:
    """Search on the first site of the target, leave it as found, and return the report.

    Args:
        outside: the outside world.
        asked: the search.
        begin: makes its questions from the held site, which is as found then.
        report: makes the report at the end, and the word for that end.

    Raises:
        InputError: there is nothing to resume.
        FleetError: with the exit code that tells the state of the hosts.
    """
    edges, jit = outside.edges, asked.spec.jit
    with opened(edges, outside.inventory, asked.job, resume=outside.resume) as (folder, site):
        searching = Searching(
            edges,
            outside.inventory,
            folder,
            asked.job,
            site,
            lambda held: begin(folder, held, asked),
            jit.reason if jit.share else "",
        )
        with _told_what_is_kept(searching):
            search = searching.run()
            found, ending = report(asked, search, folder)
            folder.record(edges.clock.now_s(), "finished", ending=ending)
        return found


@contextmanager
def _told_what_is_kept(searching: Searching[S]) -> Iterator[None]:
    """Let an error tell how the hosts were left by the whole search, and what it has lost."""
    resume = f"`fleetctl resume {searching.folder.run_id}`"
    try:
        yield
    except FleetError as error:
        if searching.has_changed and error.exit_code is ExitCode.REFUSED:
            error.exit_code = ExitCode.FAILED_RESTORED
        if isinstance(error, Interrupted):
            error.next_step = f"{resume} goes on"
        elif isinstance(error, BROKEN) and (kept := len(searching.log.answers())):
            error.next_step = (
                f"mend the cause, then {resume} goes on from {count(kept, 'measured run')}; "
                "where the spec has to change, start a new search"
            )
        elif isinstance(error, StoreError):
            kept = len(searching.log.answers())
            error.why += f"; measured runs that are kept: {kept}; what came after them is lost"
            error.next_step += f"; then {resume} goes on and gives the answer"
        raise


def search_job(
    spec: Bisect | Minimize, path: Path, contents: Sequence[Content], *, kind: str, runs: int
) -> Job:
    """Return the job of a search; its arms come one by one.

    Args:
        spec: the search.
        path: where it was read from.
        contents: its changes with the bytes of their patches.
        kind: `bisect` or `minimize`.
        runs: of each arm that the verdict compares.
    """
    return Job(
        kind=kind,
        purpose=spec.experiment.name,
        target=spec.experiment.target,
        arms=(),
        workload=spec.workload,
        trials=spec.trials.trials(max(runs, 1)),
        ready=spec.ready,
        lease_s=spec.lease,
        files={path.name: path.read_bytes(), **dict(_sources(contents))},
        flags=tuple(dict.fromkeys(name for content in contents for name in content.flags)),
        metric=spec.metric,
    )


def _sources(contents: Iterable[Content]) -> Iterator[tuple[str, bytes]]:
    for content in contents:
        for patch in content.patches:
            source = patch.patch.source.rstrip("/")
            for name, data in patch.files.items():
                yield f"{source}/{name}" if name else source, data


def digest_of_job(job: Job) -> str:
    """Return the digest by which a resumed search is known to be the same, 64 hex digits."""
    total = hashlib.sha256()
    for name, content in sorted(job.files.items()):
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


@contextmanager
def opened(
    edges: Edges, inventory: Inventory, job: Job, *, resume: bool
) -> Iterator[tuple[RunFolder, NamedSite]]:
    """Yield the folder of a search and its site: new ones, or those of the one to go on with.

    The folder is claimed meanwhile: a second controller is refused. A new one is made when every
    host of the site has let us in and is free: what was never begun leaves no folder, which
    `latest` would find instead of the run that goes on.

    Raises:
        InputError: there is no unfinished search of this very spec, or it goes on elsewhere.
        LeaseHeld: somebody works on a host.
        HostError: a host can't be reached, or what a killed controller left can't be looked at.
    """
    if resume:
        folder = unfinished(edges.runs, job)
        edges.talk.say(f"resuming {folder.run_id}: {folder.path}")
    else:
        check_startable(job.workload)
        ask_for(edges, inventory, named_sites(inventory, job.target)[0])
        folder = _new_folder(edges, job)
    with folder.claimed():
        SearchLog(folder).begin(digest_of_job(job))
        site = _site(edges, inventory, job.target, folder)
        if resume:
            settle(edges, inventory, folder, site)
            check_startable(job.workload)
            done = len(SearchLog(folder).answers())
            folder.record(edges.clock.now_s(), "resumed", answers=done)
            edges.talk.say(f"measured already: {count(done, 'run')}")
        yield folder, site


def ask_for(edges: Edges, inventory: Inventory, site: NamedSite) -> None:
    """Connect to every host of a site, see whether it can be had, and leave.

    Raises:
        HostError: one can't be reached.
        LeaseHeld: one is not free, or holds what somebody has to decide.
    """
    for name in site.hosts:
        host = reach(edges, name, inventory.hosts[name])
        with closing(host.transport):
            status = host.agent.status()
            refuse_held(host, status)
            refuse_undecided(host, status)


def unfinished(runs: Path, job: Job) -> RunFolder:
    """Return the newest unfinished search of this spec with these patches.

    Raises:
        InputError: there is none.
    """
    changed = ""
    for folder in reversed(list_runs(runs)):
        head = folder.head()
        if (head.get("kind"), head.get("name")) != (job.kind, job.purpose):
            continue
        if any(event.kind == "finished" for event in folder.events()):
            continue
        if SearchLog(folder).is_about(digest_of_job(job)):
            return folder
        changed = changed or f"{folder.run_id} is unfinished, but its spec or patches were others"
    raise InputError(
        f"there is no unfinished {job.kind} of {job.purpose} to go on with",
        why=changed or f"no run below {runs} is one",
        next_step="start a new one: the same command without --resume",
    )


def _new_folder(edges: Edges, job: Job) -> RunFolder:
    now_s = edges.clock.now_s()
    head = {
        "kind": job.kind,
        "name": job.purpose,
        "holder": edges.holder,
        "at_s": now_s,
        "target": job.target,
        "spec": next(iter(job.files)),
    }
    run_id = new_run_id(now_s, job.purpose, edges.salt())
    folder = RunFolder.create(edges.runs, run_id, head)
    for name, content in job.files.items():
        folder.write(f"spec/{name}", content)
    edges.talk.say(f"run {run_id}: {folder.path}")
    return folder


def _site(edges: Edges, inventory: Inventory, target: str, folder: RunFolder) -> NamedSite:
    """Return the one site a search runs on, so that only the builds differ: the target's first."""
    sites = named_sites(inventory, target)
    begun = str(folder.read_table("site.json")["site"]) if folder.has("site.json") else ""
    found = [site for site in sites if site.name == begun] if begun else list(sites)
    if not found:
        raise InputError(
            f"the search ran on {begun}, which is no site of {target} any more",
            why=f"{target} is {', '.join(site.name for site in sites)}",
            next_step="bring it back into the inventory, or start a new search",
        )
    if len(sites) > 1 and not begun:
        edges.talk.say(f"searching on {found[0].name}, the first of {len(sites)} sites of {target}")
    folder.write_json("site.json", {"site": found[0].name})
    return found[0]


def skipped(labels: Mapping[tuple[int, ...], str], log: SearchLog) -> tuple[tuple[str, str], ...]:
    """Return the builds that were left out, by name, each with its reason."""
    return tuple(
        (labels.get(key, " ".join(map(str, key))), why) for key, why in log.unbuildables().items()
    )
