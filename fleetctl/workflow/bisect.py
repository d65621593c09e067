"""Bisect: which of an ordered list of changes moved the rate, measured on a real site."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.spec.bisect import Bisect
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.loader import load_bisect
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.bisect_commits import build_on_all, commit_line, same_lines
from fleetctl.workflow.bisect_ground import Build
from fleetctl.workflow.bisect_run import Outside, run_search, search_job
from fleetctl.workflow.bisect_series import Content, Stack, read_changes, same_on_all
from fleetctl.workflow.campaign_site import HeldSite
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.job import Job

if TYPE_CHECKING:  # they bring the statistics, see `_begin`
    from fleetctl.report.bisect import BisectReport
    from fleetctl.workflow.bisect_search import BisectSearch


@dataclass(frozen=True)
class AskedBisect:
    """A bisection, read and checked.

    Attributes:
        contents: the base, then the changes; of commits only the base.
    """

    path: Path
    spec: Bisect
    contents: tuple[Content, ...]
    job: Job


def read_bisect(path: Path) -> AskedBisect:
    """Return a bisection with everything that can be known without a host.

    Raises:
        InputError: something in it can't be.
    """
    spec = load_bisect(path)
    contents = read_changes(spec.base, spec.change, path)
    runs = spec.bisect.confirm_runs
    return AskedBisect(
        path, spec, contents, search_job(spec, path, contents, kind="bisect", runs=runs)
    )


def build_name(labels: Sequence[str], point: int) -> str:
    """Return how people know the build of a point: its place in the list and its last change."""
    last = labels[point - 1] if point else "none of the changes"
    return f"{point}/{len(labels)} {last}"


def run_bisect(
    edges: Edges, inventory: Inventory, asked: AskedBisect, *, resume: bool = False
) -> BisectReport:
    """Search on the first site of the target, leave it as found, and judge the suspect.

    Raises:
        InputError: there is nothing to resume, or the commits can't be searched.
        FleetError: with the exit code that tells the state of the hosts.
    """
    return run_search(Outside(edges, inventory, resume), asked, _begin, _report)


def _begin(folder: RunFolder, held: HeldSite, asked: AskedBisect) -> BisectSearch:
    # on a starved machine scipy takes half a minute: a host that is held is refused before that,
    # and whoever can't import it hears so before any host is changed
    from fleetctl.workflow.bisect_search import begin  # noqa: PLC0415 - see above

    return begin(folder, held, asked)


def _report(
    asked: AskedBisect, search: BisectSearch, folder: RunFolder
) -> tuple[BisectReport, str]:
    from fleetctl.workflow.bisect_search import report_and_end  # noqa: PLC0415 - see `_begin`

    return report_and_end(asked, search, folder)


def list_of(
    hosts: Sequence[Reached], asked: AskedBisect
) -> tuple[list[str], list[str], Callable[[int, str], Build]]:
    """Return labels, commit ids and the maker of builds, from hosts that are as found.

    Raises:
        InputError: the commits can't be listed.
        DriftError: a module is not imported where it should be.
    """
    if asked.spec.commits is None:
        stacks = [Stack.on(host, asked.contents) for host in hosts]

        def stacked(point: int, name: str) -> Build:
            chosen = asked.contents[: point + 1]
            return Build(same_on_all([stack.arm(name, chosen) for stack in stacks]))

        return [content.name for content in asked.contents[1:]], [], stacked
    lines = [commit_line(host, asked.spec.commits) for host in hosts]
    line = same_lines(lines)
    flags = asked.contents[0].flags

    def committed(point: int, name: str) -> Build:
        build = build_on_all(lines, point, name)
        return replace(build, arm=replace(build.arm, flags=flags))

    labels = [commit.name + (" (merge)" if commit.is_merge else "") for commit in line.commits[1:]]
    return labels, [commit.sha for commit in line.commits], committed
