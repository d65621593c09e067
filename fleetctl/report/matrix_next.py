"""What a matrix says in one sentence more, and what to measure next."""

from __future__ import annotations

from collections.abc import Iterator

from fleetctl.analysis.conjunction import Conjunction
from fleetctl.analysis.matrix_effects import Effect
from fleetctl.analysis.matrix_screen import FALSE_DISCOVERIES
from fleetctl.analysis.power import sample_size_per_arm
from fleetctl.report.matrix_words import MatrixReport, matters, spelled
from fleetctl.report.numbers import count, p_value, percent

MOST_SESSIONS = 1_000_000


def explanation(found: Conjunction, bad: str) -> str:
    """Return which combination of levels tells where sessions are bad, as `bad` calls them."""
    where = " with ".join(f"{factor}={level}" for factor, level in found.levels)
    several = len(found.levels) > 1
    told = f"{' x '.join(factor for factor, _ in found.levels)} explains it: {where}"
    return (
        f"{told} has {percent(found.inside_rate)}, everything else "
        f"{percent(found.outside_rate)}; {percent(found.bad_share)} of the {bad} sessions are there"
        + (" (a description of these data: confirm it)" if several else "")
    )


def next_steps(report: MatrixReport) -> list[str]:
    """Return what to measure next, the most useful first."""
    return [
        *_unfinished(report),
        *_confirm(report),
        *_screen(report),
        *_untangle(report),
        *_declare(report),
        *_more_sessions(report),
    ]


def _unfinished(report: MatrixReport) -> Iterator[str]:
    missing = report.planned - sum(len(cell.counts.runs) for cell in report.cells)
    if report.planned and missing > 0:
        again = f"`fleetctl matrix --resume {report.run_id}`" if report.run_id else "--resume"
        yield f"{count(missing, 'run')} brought nothing that counts: {again} makes them"
    for site, why in report.quarantined:
        yield f"look at {site}, which was set aside: {why}"


def _confirm(report: MatrixReport) -> Iterator[str]:
    """A matrix screens: what it finds is confirmed by an experiment that changes one thing."""
    if report.effects is None:
        return
    moved = [e for e in report.effects.effects if matters(e) and len(e.term) == 1]
    if moved:
        largest = min(moved, key=lambda effect: effect.p_holm or 0.0)
        if (largest.level_rate or 0.0) > (largest.baseline_rate or 0.0):
            yield _confirm_a_cause(report, largest)
            return
        yield (
            f"confirm {spelled(largest.term)} by itself: an experiment with the baseline as its "
            "control and this one change, 5 runs or more"
        )


def _confirm_a_cause(report: MatrixReport, effect: Effect) -> str:
    """Return how to confirm what brings the fault: a control has to show it."""
    levels = effect.term
    found = report.explained
    if found is not None and set(levels) <= set(found.levels):
        levels = tuple(found.levels)
    with_fault = " with ".join(f"{factor}={level}" for factor, level in levels)
    return (
        f"confirm {spelled(effect.term)} by itself: an experiment whose control has {with_fault}, "
        f"so that it shows the fault, and whose treatment is without {spelled(effect.term)}, "
        "5 runs or more"
    )


def _screen(report: MatrixReport) -> Iterator[str]:
    """Say what would pass a screening of many levels, and is not shown yet."""
    if report.effects is None:
        return
    for effect in report.effects.effects:
        if effect.p_bh is not None and effect.p_bh < FALSE_DISCOVERIES and not matters(effect):
            yield (
                f"{spelled(effect.term)} passes a screening at {percent(FALSE_DISCOVERIES)} false "
                f"discoveries (BH p {p_value(effect.p_bh)}): confirm it in a new experiment"
            )


def _untangle(report: MatrixReport) -> Iterator[str]:
    if report.effects is None:
        return
    for effect in report.effects.effects:
        same = report.aliases.get(tuple(name for name, _ in effect.term), ())
        if same and matters(effect):
            yield (
                f"{spelled(effect.term)} can't be told from {' or '.join(same)}: add the cells "
                "that differ (`include`), or run the full product of these factors"
            )


def _declare(report: MatrixReport) -> Iterator[str]:
    for one in report.screened:
        yield (
            f"{' x '.join(one.pair)} may interact (found by looking, p {one.p:.2g}): declare it "
            "under `interactions` before the next run"
        )


def _more_sessions(report: MatrixReport) -> Iterator[str]:
    """Say how many sessions would tell the differences that were seen but not shown."""
    if report.effects is None:
        return
    for effect in report.effects.effects:
        needed = None if matters(effect) else _sessions_needed(effect)
        if needed is not None:
            yield (
                f"{spelled(effect.term)}: {percent(effect.baseline_rate)} against "
                f"{percent(effect.level_rate)} would need about {needed:,} sessions per level"
            )


def _sessions_needed(effect: Effect) -> int | None:
    base, level = effect.baseline_rate, effect.level_rate
    if base is None or level is None or base == level or len(effect.term) > 1:
        return None
    size = sample_size_per_arm(base, level).fleiss
    return None if size is None or size > MOST_SESSIONS else round(size)
