"""Minimise: which few of several changes keep the effect, measured on a real site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.spec.bisect import Minimize
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.loader import load_minimize
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.bisect_ground import Build
from fleetctl.workflow.bisect_run import Outside, run_search, search_job
from fleetctl.workflow.bisect_series import Content, Stack, read_changes, same_on_all
from fleetctl.workflow.campaign_site import HeldSite
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.job import Job

if TYPE_CHECKING:  # they bring the statistics, see `_begin`
    from fleetctl.report.minimize import MinimizeReport
    from fleetctl.workflow.minimize_search import MinimizeSearch


@dataclass(frozen=True)
class AskedMinimize:
    """A minimisation, read and checked.

    Attributes:
        contents: the base, then the changes.
    """

    path: Path
    spec: Minimize
    contents: tuple[Content, ...]
    job: Job


def read_minimize(path: Path) -> AskedMinimize:
    """Return a minimisation with everything that can be known without a host.

    Raises:
        InputError: something in it can't be.
    """
    spec = load_minimize(path)
    contents = read_changes(spec.base, spec.change, path)
    return AskedMinimize(
        path, spec, contents, search_job(spec, path, contents, kind="minimize", runs=1)
    )


def run_minimize(
    edges: Edges, inventory: Inventory, asked: AskedMinimize, *, resume: bool = False
) -> MinimizeReport:
    """Minimise on the first site of the target and leave it as found.

    Raises:
        InputError: there is nothing to resume.
        FleetError: with the exit code that tells the state of the hosts.
    """
    return run_search(Outside(edges, inventory, resume), asked, _begin, _report)


def _begin(folder: RunFolder, held: HeldSite, asked: AskedMinimize) -> MinimizeSearch:
    # as for a bisection: the hosts are asked and held before scipy is loaded
    from fleetctl.workflow.minimize_search import begin  # noqa: PLC0415 - see above

    return begin(folder, held, asked)


def _report(
    asked: AskedMinimize, search: MinimizeSearch, folder: RunFolder
) -> tuple[MinimizeReport, str]:
    from fleetctl.workflow.minimize_search import report_and_end  # noqa: PLC0415 - see `_begin`

    return report_and_end(asked, search, folder)


def set_of(
    hosts: Sequence[Reached], asked: AskedMinimize
) -> tuple[tuple[str, ...], Callable[[Iterable[int], str], Build]]:
    """Return labels and the maker of builds, from hosts that are as found.

    Raises:
        DriftError: a module is not imported where it should be.
    """
    base, *changes = asked.contents
    stacks = [Stack.on(host, asked.contents) for host in hosts]

    def stacked(chosen: Iterable[int], name: str) -> Build:
        contents = [base, *(changes[index] for index in chosen)]
        return Build(same_on_all([stack.arm(name, contents) for stack in stacks]))

    return tuple(content.name for content in changes), stacked
