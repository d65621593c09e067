"""Two arms compared inside strata (hosts, or the cells of the other factors)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats
from statsmodels.stats.contingency_tables import StratifiedTable


class TwoByTwo(NamedTuple):
    """Counts of one stratum."""

    control_bad: int
    control_clean: int
    treatment_bad: int
    treatment_clean: int

    @property
    def is_informative(self) -> bool:
        """Whether both arms have sessions and not all of them ended alike."""
        control = self.control_bad + self.control_clean
        treatment = self.treatment_bad + self.treatment_clean
        bad = self.control_bad + self.treatment_bad
        return control > 0 and treatment > 0 and 0 < bad < control + treatment


class Cmh(NamedTuple):
    """Cochran-Mantel-Haenszel test; all None where no stratum tells anything.

    Attributes:
        chi2: statistic without continuity correction.
        p: its p.
        common_or: pooled odds ratio, control over treatment; None where it is infinite.
        breslow_day_p: p of one odds ratio in all strata; None with fewer than two strata.
    """

    chi2: float | None
    p: float | None
    common_or: float | None
    breslow_day_p: float | None


def cmh(tables: Sequence[TwoByTwo]) -> Cmh:
    """Return the test of no difference in any stratum; strata without information are left out."""
    told = [table for table in tables if table.is_informative]
    if not told:
        return Cmh(None, None, None, None)
    stratified = StratifiedTable([np.array(table, dtype=float).reshape(2, 2) for table in told])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # empty margins divide by zero
        null = stratified.test_null_odds(correction=False)
        ratio = _finite(stratified.oddsratio_pooled)
    return Cmh(_finite(null.statistic), _finite(null.pvalue), ratio, _breslow_day_p(told, ratio))


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _breslow_day_p(tables: Sequence[TwoByTwo], ratio: float | None) -> float | None:
    """Return the p of one odds ratio in all strata; None with one stratum or without a ratio.

    Own code because `statsmodels` divides by zero when the pooled ratio is exactly 1.

    Source: Breslow & Day 1980, without Tarone's correction.
    """
    if len(tables) < 2 or not ratio:
        return None
    statistic = 0.0
    for table in tables:
        control, treatment = table[0] + table[1], table[2] + table[3]
        bad = table.control_bad + table.treatment_bad
        # The expected count solves (1 - r) e^2 + linear e - r control bad = 0; this form of the
        # root holds at r = 1 as well.
        linear = ratio * (control + bad) + treatment - bad
        product = ratio * control * bad
        e = 2 * product / (linear + math.sqrt(linear**2 + 4 * (1 - ratio) * product))
        inverse = 1 / e + 1 / (control - e) + 1 / (bad - e) + 1 / (treatment - bad + e)
        statistic += (table.control_bad - e) ** 2 * inverse
    return float(stats.chi2.sf(statistic, len(tables) - 1))


def exact_conditional_p(tables: Sequence[TwoByTwo]) -> float | None:
    """Return the exact two-sided p of no difference, given each stratum's margins.

    The treatment's bad sessions are a sum of hypergeometrics; twice the smaller tail, at most 1.
    None where no stratum tells anything.
    """
    told = [table for table in tables if table.is_informative]
    if not told:
        return None
    total = np.ones(1)
    for table in told:
        treatment = table.treatment_bad + table.treatment_clean
        bad = table.control_bad + table.treatment_bad
        sessions = sum(table)
        pmf = stats.hypergeom.pmf(np.arange(treatment + 1), sessions, bad, treatment)
        total = np.convolve(total, pmf)
    seen = sum(table.treatment_bad for table in told)
    tails = (float(total[: seen + 1].sum()), float(total[seen:].sum()))
    return min(1.0, 2 * min(tails))
