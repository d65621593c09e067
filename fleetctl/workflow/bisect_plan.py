"""What a search would do, before it does anything: its builds, both ends' diffs, runs at best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from fleetctl.spec.arms import Arm
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.metric import Metric
from fleetctl.workflow.bisect import AskedBisect, build_name, list_of
from fleetctl.workflow.campaign_site import planned, reached_site
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.held import refuse_held, refuse_restoring
from fleetctl.workflow.job import Job
from fleetctl.workflow.minimize import AskedMinimize, set_of
from fleetctl.workflow.prepare import SitePlan
from fleetctl.workflow.site import Site, named_sites

_GOOD_RATE = 0.01


@dataclass(frozen=True)
class SearchPlan:
    """What a search would do.

    Attributes:
        builds: names of the builds of a list, in order; of a set only both ends.
        ends: the plan of both ends on the site.
        least_runs: expected runs of a bisection at best, at the rates `assumed`; None for a set.
        assumed: good and bad rate.
        metric: what its runs will count.
    """

    site: str
    builds: tuple[str, ...]
    ends: SitePlan
    least_runs: float | None
    assumed: tuple[float, float]
    metric: Metric


def plan_bisect(
    edges: Edges, inventory: Inventory, asked: AskedBisect, bad_rate: float
) -> SearchPlan:
    """Plan both ends of the list on the first site of the target; nothing is changed.

    Raises:
        FleetError: something can't be done exactly.
    """
    spec = asked.spec.bisect
    good = _GOOD_RATE if spec.good_rate is None else spec.good_rate
    bad = bad_rate if spec.bad_rate is None else spec.bad_rate
    with _site(edges, inventory, asked.job) as site:
        labels, _, make = list_of(site.hosts, asked)
        names = tuple(build_name(labels, point) for point in range(len(labels) + 1))
        arms = [make(point, names[point]).arm for point in (0, len(labels))]
        ends = _planned(edges, inventory, site, asked.job, arms)
    least = _least_runs(len(labels), good, bad, asked.job.workload.sessions)
    return SearchPlan(site.name, names, ends, least, (good, bad), asked.spec.metric)


def _least_runs(changes: int, good: float, bad: float, sessions: int) -> float | None:
    # on a starved machine scipy takes half a minute: the hosts have answered by now
    from fleetctl.analysis.change_point import (  # noqa: PLC0415 - see above
        Rates,
        information_per_run,
    )

    told = information_per_run(Rates(good, bad), sessions)
    return told.min_runs(changes) if changes > 1 else 0.0


def plan_minimize(edges: Edges, inventory: Inventory, asked: AskedMinimize) -> SearchPlan:
    """Plan the site with all changes and with none; nothing is changed.

    Raises:
        FleetError: something can't be done exactly.
    """
    with _site(edges, inventory, asked.job) as site:
        labels, make = set_of(site.hosts, asked)
        names = ("none of the changes", "all changes")
        sets = ((), range(len(labels)))
        arms = [make(chosen, name).arm for chosen, name in zip(sets, names, strict=True)]
        ends = _planned(edges, inventory, site, asked.job, arms)
    return SearchPlan(site.name, names, ends, None, (0.0, 0.0), asked.spec.metric)


@contextmanager
def _site(edges: Edges, inventory: Inventory, job: Job) -> Iterator[Site]:
    named = named_sites(inventory, job.target)[0]
    with reached_site(edges, inventory, named) as site:
        for host in site.hosts:
            status = host.agent.status()
            refuse_held(host, status)
            refuse_restoring(host, status)
        yield site


def _planned(
    edges: Edges, inventory: Inventory, site: Site, job: Job, arms: Sequence[Arm]
) -> SitePlan:
    return planned(edges, inventory, site, replace(job, arms=tuple(arms)))
