"""Two arms as if sessions were independent: shown beside the main test, never decisive alone."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import optimize, special, stats

from fleetctl.analysis.counts import ArmCounts, Interval
from fleetctl.analysis.rates import wilson

VACUOUS = Interval(-1.0, 1.0)
JUST_BESIDE = 1e-9
MOST_BOSCHLOO_TABLES = 130_000
_TAIL = np.array([1e-12, 1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.2])
_PIECES = np.concatenate([_TAIL, [0.5], 1 - _TAIL[::-1]])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def _table(xb: int, nb: int, xc: int, nc: int) -> np.ndarray:
    return np.array([[xb, xc], [nb - xb, nc - xc]])


def fisher_p(xb: int, nb: int, xc: int, nc: int) -> float:
    """Return Fisher's exact two-sided p."""
    return float(stats.fisher_exact(_table(xb, nb, xc, nc)).pvalue)


def boschloo_p(xb: int, nb: int, xc: int, nc: int) -> float:
    """Return Boschloo's exact p, two-sided: twice the smaller side, at most 1.

    Seconds above 400 sessions in each arm.
    """
    if (xb, xc) in ((0, 0), (nb, nc)):
        return 1.0
    return min(1.0, float(stats.boschloo_exact(_table(xb, nb, xc, nc), n=64).pvalue))


def barnard_p(xb: int, nb: int, xc: int, nc: int) -> float:
    """Return Barnard's exact two-sided p (Wald statistic, pooled variance)."""
    if (xb, xc) in ((0, 0), (nb, nc)):
        return 1.0
    return min(1.0, float(stats.barnard_exact(_table(xb, nb, xc, nc), n=256).pvalue))


def newcombe(xb: float, nb: float, xc: float, nc: float, conf: float = 0.95) -> Interval:
    """Return Newcombe's hybrid interval of treatment minus control.

    Source: Newcombe 1998, method 10: the two Wilson intervals combined.
    """
    pb, pc = xb / nb, xc / nc
    control, treatment = wilson(xb, nb, conf), wilson(xc, nc, conf)
    return Interval(
        pc - pb - math.hypot(pc - treatment.low, control.high - pb),
        pc - pb + math.hypot(treatment.high - pc, pb - control.low),
    )


def miettinen_nurminen(xb: float, nb: float, xc: float, nc: float, conf: float = 0.95) -> Interval:
    """Return the score interval of treatment minus control; counts may be effective ones.

    Own code because `statsmodels` has a wrong coefficient in the constrained estimate (issue
    10269) and raises on empty cells. An interval from one effective session or less is vacuous.

    Source: Miettinen & Nurminen 1985, with the factor N/(N-1).
    """
    if nb + nc <= 1:
        return VACUOUS
    z = float(special.ndtri((1 + conf) / 2))
    return Interval(-_score_limit(xc, nc, xb, nb, z), _score_limit(xb, nb, xc, nc, z))


def _score_limit(xb: float, nb: float, xc: float, nc: float, z: float) -> float:
    """Return the largest difference whose score statistic does not exceed z."""
    seen = xc / nc - xb / nb
    inflation = (nb + nc) / (nb + nc - 1)

    def excess(difference: float) -> float:
        pb = _constrained_control_rate(xb, nb, xc, nc, difference)
        pc = pb + difference
        variance = (pb * (1 - pb) / nb + pc * (1 - pc) / nc) * inflation
        return (difference - seen) ** 2 - z * z * variance

    # With no event at all the variance is zero at the estimate itself, so look just beside it.
    start = seen + JUST_BESIDE
    if start >= 1 or excess(start) >= 0:
        return min(start, 1.0)
    return float(optimize.brentq(excess, start, 1.0, xtol=1e-13))


def _constrained_control_rate(
    xb: float, nb: float, xc: float, nc: float, difference: float
) -> float:
    """Return the likeliest control rate when the treatment's is `difference` above it.

    Source: Miettinen & Nurminen 1985, appendix (closed solution of the cubic).
    """
    total, bad = nb + nc, xb + xc
    quadratic = ((nc + 2 * nb) * difference - total - bad) / (3 * total)
    linear = ((nb * difference - total - 2 * xb) * difference + bad) / total
    constant = xb * difference * (1 - difference) / total
    q = quadratic**3 - linear * quadratic / 2 + constant / 2
    radius = math.copysign(math.sqrt(max(quadratic**2 - linear / 3, 0.0)), q)
    cosine = q / radius**3 if radius else 0.0
    angle = (math.pi + math.acos(min(1.0, max(-1.0, cosine)))) / 3
    root = 2 * radius * math.cos(angle) - quadratic
    return min(max(root, 0.0, -difference), 1.0, 1 - difference)


def p_rate_below(xb: int, nb: int, xc: int, nc: int, ratio: float = 1.0) -> float:
    """Return the posterior probability that the treatment's rate is below `ratio` x control's.

    Jeffreys prior in each arm, independent sessions: an answer for readers, no stopping rule.
    """
    control, treatment = (xb + 0.5, nb - xb + 0.5), (xc + 0.5, nc - xc + 0.5)
    # In the control's quantile the integrand is a step from 0 to 1 of unknown place and width,
    # so the pieces end where the treatment's own quantiles lie; and at the control's, since an arm
    # of few sessions has a posterior that rises like a root at 0 or 1.
    places = special.betaincinv(*treatment, _PIECES) / ratio
    steps = special.betainc(*control, np.minimum(places, 1.0))
    edges = np.unique(np.concatenate([[0.0], steps, _PIECES, [1.0]]))
    half = np.diff(edges)[:, None] / 2
    quantile = edges[:-1, None] + half * (1 + _NODES)
    rate = special.betaincinv(*control, quantile)
    below = special.betainc(*treatment, np.minimum(ratio * rate, 1.0))
    return min(1.0, float((half * _WEIGHTS * below).sum()))


class SessionView(NamedTuple):
    """What the counts would say if sessions were independent.

    Attributes:
        fisher_p: Fisher's exact p.
        boschloo_p: Boschloo's exact p; None for arms so large that it would take many seconds.
        newcombe95: Newcombe's interval of the difference.
        mn95: Miettinen and Nurminen's interval of the difference.
    """

    fisher_p: float
    boschloo_p: float | None
    newcombe95: Interval
    mn95: Interval


def session_view(control: ArmCounts, treatment: ArmCounts) -> SessionView | None:
    """Return the session view of two arms; None when one is empty."""
    counts = (control.bad, control.sessions, treatment.bad, treatment.sessions)
    if not (control.sessions and treatment.sessions):
        return None
    quick = control.sessions * treatment.sessions <= MOST_BOSCHLOO_TABLES
    return SessionView(
        fisher_p=fisher_p(*counts),
        boschloo_p=boschloo_p(*counts) if quick else None,
        newcombe95=newcombe(*counts),
        mn95=miettinen_nurminen(*counts),
    )
