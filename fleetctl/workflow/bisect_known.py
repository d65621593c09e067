"""What a search knows before its first run; a resumed one knows the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fleetctl.analysis.bisection_rates import OFTEN, RARE, RHOS, RatePriors, rho_weights, told
from fleetctl.analysis.history import pool
from fleetctl.errors import InputError
from fleetctl.spec.bisect import BisectSpec, MinimizeSpec
from fleetctl.store.history import History
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.campaign_site import HeldSite
from fleetctl.workflow.workloads import digest_of

_KNOWN = "search.json"


@dataclass(frozen=True)
class Known:
    """What a search knew when it began; a resumed one knows the same.

    Attributes:
        labels: of the changes, in order.
        rho: weights of the correlations inside runs, from A/A history.
        ids: commit ids of the points; empty for a series.
    """

    labels: tuple[str, ...]
    rho: tuple[float, ...]
    ids: tuple[str, ...] = ()


def known_at_start(
    folder: RunFolder, held: HeldSite, labels: Sequence[str], ids: Sequence[str] = ()
) -> Known:
    """Return what the search knew at its start; written down the first time.

    Raises:
        InputError: a resumed search finds other changes than it began with.
    """
    if not folder.has(_KNOWN):
        rho = _rho(folder, held)
        folder.write_json(_KNOWN, {"labels": list(labels), "rho": list(rho), "ids": list(ids)})
    told_before = folder.read_table(_KNOWN)
    known = Known(*(tuple(told_before[name]) for name in ("labels", "rho", "ids")))
    # a search begun by an older version weighed fewer correlations, and goes on with those
    known = replace(known, rho=known.rho + (0.0,) * (len(RHOS) - len(known.rho)))
    if (known.labels, known.ids) != (tuple(labels), tuple(ids)):
        raise InputError(
            "the list of changes is not the one that the search began with",
            why=f"it had {len(known.labels)}, now there are {len(labels)}, or others",
            next_step="bring the commits back, or start a new search without --resume",
        )
    return known


def _rho(folder: RunFolder, held: HeldSite) -> tuple[float, ...]:
    workload = held.job.workload
    history = pool(
        History(folder.path.parent).aa_records(),
        host_class=held.plan.site.entry.host.host_class,
        workload_sha256=digest_of(workload),
        metric=held.job.metric,
    )
    return rho_weights(history, workload.sessions)


def rate_priors(spec: BisectSpec | MinimizeSpec, rho: tuple[float, ...]) -> RatePriors:
    """Return what is believed about the rates beforehand."""
    return RatePriors(
        good=RARE if spec.good_rate is None else told(spec.good_rate),
        bad=OFTEN if spec.bad_rate is None else told(spec.bad_rate),
        smallest=spec.smallest_effect,
        rho_weights=rho,
    )
