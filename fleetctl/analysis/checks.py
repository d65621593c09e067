"""Checks of the counts themselves: drift, bracket, hosts, balance, and whether the fault showed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from scipy import stats

from fleetctl.analysis.counts import ArmCounts, Run
from fleetctl.analysis.design import Design
from fleetctl.analysis.dispersion import run_dispersion
from fleetctl.analysis.guards import Check, GuardFacts, OtherFailures, at_least
from fleetctl.analysis.permutation import drift_test_stratified
from fleetctl.analysis.qbf import Pooled, pooled_dispersion, qbf_test, rate_lower_bound
from fleetctl.analysis.strata import TwoByTwo, cmh

NOTABLE_P = 0.05
VOID_P = 0.001
# Six runs that fall from first to last give .003, so drift is void a little earlier than the rest.
VOID_DRIFT_P = 0.01


def count_checks(
    control: ArmCounts, treatment: ArmCounts, facts: GuardFacts, pooled: Pooled, design: Design
) -> list[Check]:
    """Return the checks of the counts, in the order in which they are told.

    Where all failures count, there are no other ones to be compared.
    """
    return [
        _drift(control, treatment),
        _bracket(control, treatment),
        _hosts(control, treatment),
        _imbalance(control, treatment, facts),
        _heterogeneity("control", control),
        _heterogeneity("treatment", treatment),
        _reproduced(control, pooled, design.target),
        *([_other_failures(facts)] if design.metric == "corruption" else []),
    ]


def _in_time(runs: Iterable[Run]) -> list[Run]:
    placed = [run for run in runs if run.position is not None and run.sessions]
    return sorted(placed, key=lambda run: run.position or 0)


def _drift(control: ArmCounts, treatment: ArmCounts) -> Check:
    """Kendall's exact test of a trend over time in each arm, inside its hosts.

    The smaller p of the two arms, doubled for having looked at both.
    """
    trends = [drift_test_stratified(_series(arm)) for arm in (control, treatment)]
    p_values = [trend.p for trend in trends if trend is not None]
    if not p_values:
        return Check("drift", passed=None)
    return at_least("drift", min(1.0, len(p_values) * min(p_values)), VOID_DRIFT_P, "p")


def _series(arm: ArmCounts) -> list[list[float]]:
    """Return the rates of each host's runs in time order."""
    series: dict[str, list[float]] = defaultdict(list)
    for run in _in_time(arm.runs):
        series[run.host].append(run.bad / run.sessions)
    return list(series.values())


def _bracket(control: ArmCounts, treatment: ArmCounts) -> Check:
    """First against last run of the control, on the dispersion of all other runs."""
    runs = _in_time(control.runs)
    if len(runs) < 2 or control.rate in (None, 0.0, 1.0):
        return Check("bracket", passed=None)
    first, last = runs[0], runs[-1]
    between = ArmCounts(control.name, tuple(r for r in control.runs if r not in (first, last)))
    others = pooled_dispersion([between.clusters, treatment.clusters])
    if not others.df:
        return Check("bracket", passed=None)
    rate = control.bad / control.sessions
    spread = others.phi * rate * (1 - rate) * (1 / first.sessions + 1 / last.sessions)
    t = (last.bad / last.sessions - first.bad / first.sessions) / math.sqrt(spread)
    return at_least("bracket", float(2 * stats.t.sf(abs(t), others.df)), VOID_P, "p")


def _hosts(control: ArmCounts, treatment: ArmCounts) -> Check:
    """Breslow-Day: is the effect the same on every host?

    Its statistic is divided by the dispersion of runs inside host and arm.
    """
    hosts = sorted({run.host for arm in (control, treatment) for run in arm.runs})
    cells = {host: (_on(control, host), _on(treatment, host)) for host in hosts}
    tables = [TwoByTwo(*_outcome(a), *_outcome(b)) for a, b in cells.values()]
    test = cmh(tables)
    if test.breslow_day_p is None:
        return Check("hosts_disagree", passed=None)
    inside = pooled_dispersion([arm.clusters for pair in cells.values() for arm in pair])
    df = sum(table.is_informative for table in tables) - 1
    p = float(stats.chi2.sf(stats.chi2.isf(test.breslow_day_p, df) / inside.phi, df))
    return at_least("hosts_disagree", p, VOID_P, "p")


def _on(arm: ArmCounts, host: str) -> ArmCounts:
    return ArmCounts(arm.name, tuple(run for run in arm.runs if run.host == host))


def _outcome(arm: ArmCounts) -> tuple[int, int]:
    return arm.bad, arm.sessions - arm.bad


def _imbalance(control: ArmCounts, treatment: ArmCounts, facts: GuardFacts) -> Check:
    """Realised against planned sessions of the arms."""
    planned = (facts.control.planned_sessions, facts.treatment.planned_sessions)
    total = control.sessions + treatment.sessions
    if planned[0] is None or planned[1] is None or not (all(planned) and total):
        return Check("imbalance", passed=None)
    expected = [total * share / (planned[0] + planned[1]) for share in (planned[0], planned[1])]
    p = float(stats.chisquare([control.sessions, treatment.sessions], expected).pvalue)
    return at_least("imbalance", p, VOID_P, "p")


def _heterogeneity(side: str, arm: ArmCounts) -> Check:
    """Spread between the runs of one arm: told, and paid for by phi, but never void."""
    spread = run_dispersion(arm.clusters)
    name = f"heterogeneous_{side}"
    if spread is None:
        return Check(name, passed=None, voids=False)
    return replace(at_least(name, spread.chi2_p, NOTABLE_P, "p"), voids=False)


def _reproduced(control: ArmCounts, pooled: Pooled, target: float) -> Check:
    """The control must show the fault beyond doubt: its lower bound is above the target."""
    low = rate_lower_bound(control, pooled)
    return Check("bug_not_reproduced", passed=low > target, value=low, limit=target, unit="rate")


def _other_failures(facts: GuardFacts) -> Check:
    """Did more sessions of the treatment fail without being corrupt? One-sided, by runs."""
    found = (facts.control.other_failures, facts.treatment.other_failures)
    unchecked = Check("other_failures", passed=None, voids=False, facts=_told_failures(found))
    if found[0] is None or found[1] is None:
        return unchecked
    test = qbf_test(found[0].counts, found[1].counts)
    if test.p is None or test.t is None:
        return unchecked
    p = test.p / 2 if test.t > 0 else 1 - test.p / 2
    return replace(
        at_least("other_failures", p, NOTABLE_P, "p"), voids=False, facts=unchecked.facts
    )


def _told_failures(found: Iterable[OtherFailures | None]) -> tuple[str, ...]:
    return tuple(
        f"{one.counts.name}: {one.counts.bad} of {one.counts.sessions} ({_by_class(one.classes)})"
        for one in found
        if one is not None and one.counts.bad
    )


def _by_class(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items() if number)
