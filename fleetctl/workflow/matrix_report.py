"""From what a campaign measured to its report, also later from the folder alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.analysis.conjunction import best_conjunction
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.matrix_effects import Factor, MatrixCell, MatrixEffects, matrix_effects
from fleetctl.analysis.matrix_screen import undeclared_interactions
from fleetctl.errors import InputError
from fleetctl.report.matrix import MatrixReport, as_json, markdown, render
from fleetctl.spec.matrix import Matrix
from fleetctl.store.campaign import CampaignState, CellResult, RunPhase
from fleetctl.store.history import History
from fleetctl.trial.people import NOT_AS_ASKED
from fleetctl.workflow.as_found import notes_of
from fleetctl.workflow.campaign import CampaignEnd
from fleetctl.workflow.campaign_status import first_line
from fleetctl.workflow.facts import TrialFacts, arm_counts, clock_steps, in_order, not_countable
from fleetctl.workflow.judgement import matching_dispersion
from fleetctl.workflow.matrix import AskedMatrix

# the critical value of F(1, 6) is 1.6 times that of chi-square, that of F(1, 2) five times
_ENOUGH_SPARE = 6
MOST_CELLS = 3  # that are named where many are alike


@dataclass(frozen=True)
class Counted:
    """A trial that was counted.

    Attributes:
        cell: its name in the matrix as it is now.
        epoch: which boot of the hosts.
        block: what makes its host equal to others.
    """

    cell: str
    facts: TrialFacts
    epoch: str
    block: str


def counted_of(state: CampaignState, results: Sequence[CellResult]) -> tuple[Counted, ...]:
    """Return the trials that were counted, under the present names of their cells."""
    runs = {one.run.id: one.run for one in state.runs}
    return tuple(
        Counted(
            run.cell,
            replace(TrialFacts.from_json(result.facts), arm=run.cell),
            result.epoch,
            run.block,
        )
        for result in results
        if (run := runs.get(result.id)) is not None
    )


def report_matrix(
    asked: AskedMatrix,
    state: CampaignState,
    counted: Sequence[Counted],
    *,
    history: Dispersion | None = None,
    run_id: str = "",
    reused: int = 0,
    as_found: Sequence[str] = (),
) -> MatrixReport:
    """Return the table of cells, what each factor does, and what went wrong.

    Args:
        asked: the matrix.
        state: of its runs.
        counted: the trials that count.
        history: what A/A runs showed.
        run_id: the run's folder.
        reused: how many runs an earlier controller had measured.
        as_found: what every cell stood on that is not of this run.
    """
    factors = factors_of(asked.matrix)
    metric = asked.matrix.verdict.metric
    exercised = [
        one
        for one in counted
        if not one.facts.missed_triggers and not not_countable(one.facts, metric)
    ]
    cells = cells_by(asked, exercised, {one.facts.trial: one.facts.host for one in exercised})
    estimated = _estimated(asked, factors, exercised, history)
    declared = asked.matrix.matrix.interactions
    return MatrixReport(
        asked.matrix.experiment.name,
        factors,
        cells,
        estimated.effects,
        "" if estimated.effects is not None else estimated.failure,
        hypothesis=asked.matrix.experiment.hypothesis,
        run_id=run_id,
        planned=len(state.runs),
        reused=reused,
        failed=tuple(
            (one.run.cell, one.run.run, one.site, first_line(one.why))
            for one in state.in_phase(RunPhase.FAILED)
        ),
        quarantined=tuple((site, first_line(why)) for site, why in state.quarantined.items()),
        aliases=aliases_of(asked),
        explained=best_conjunction(factors, cells),
        screened=undeclared_interactions(factors, cells, declared, history),
        history=history,
        metric=asked.matrix.verdict.metric,
        notes=(*as_found, *_without_interactions(estimated), *_notes(asked, state, counted)),
    )


def factors_of(matrix: Matrix) -> tuple[Factor, ...]:
    """Return the factors for the model, the baseline's level first."""
    baseline = matrix.matrix.baseline
    return tuple(
        Factor(
            factor.name,
            (
                baseline[factor.name],
                *(level.name for level in factor.level if level.name != baseline[factor.name]),
            ),
            factor.observer,
        )
        for factor in matrix.factor
    )


def aliases_of(asked: AskedMatrix) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return what each effect of the model can't be told from; empty for a full design."""
    fraction = asked.fraction
    effects: list[tuple[str, ...]] = [(factor.name,) for factor in asked.matrix.factor]
    effects += [tuple(pair) for pair in asked.matrix.matrix.interactions]
    return {
        effect: tuple(fraction.spelled(alias) for alias in found)
        for effect in effects
        if (found := fraction.aliases(effect))
    }


@dataclass(frozen=True)
class _Estimated:
    """What the model says.

    Attributes:
        effects: None where no model has an answer.
        failure: why the one with the declared interactions has none; empty where it has.
    """

    effects: MatrixEffects | None
    failure: str = ""


def _estimated(
    asked: AskedMatrix,
    factors: Sequence[Factor],
    counted: Sequence[Counted],
    history: Dispersion | None,
) -> _Estimated:
    """Return the effects from the whole model, or without its interactions where it has no answer.

    What a factor does is asked of a model without its interactions anyway.
    """
    declared = asked.matrix.matrix.interactions
    whole = _on_finest_blocks(asked, factors, counted, declared, history)
    if whole.effects is not None or not declared:
        return whole
    return replace(_on_finest_blocks(asked, factors, counted, (), history), failure=whole.failure)


def _on_finest_blocks(
    asked: AskedMatrix,
    factors: Sequence[Factor],
    counted: Sequence[Counted],
    interactions: Sequence[tuple[str, str]],
    history: Dispersion | None,
) -> _Estimated:
    """Return the effects with the finest blocks that the model can bear.

    Host and boot, hosts, or sets of equal hosts: a cell that was measured on one host only can't
    be told from that host, and blocks that eat up the degrees of freedom leave no test.
    """
    failure = ""
    found: list[MatrixEffects] = []
    for blocked_by, blocks in _blockings(counted):
        try:
            cells = cells_by(asked, counted, blocks)
            effects = matrix_effects(factors, cells, interactions, history)
        except InputError as error:
            failure = failure or str(error)
            continue
        found.append(replace(effects, blocked_by=blocked_by))
        if effects.method != "firth" or effects.spare >= _ENOUGH_SPARE:
            break
    return _Estimated(found[-1]) if found else _Estimated(None, failure)


def _blockings(counted: Sequence[Counted]) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield names of blocks and the block of each trial, the finest first."""
    yield "host and boot", _host_and_boot(counted)
    yield "host", {one.facts.trial: one.facts.host for one in counted}
    yield "set of equal hosts", {one.facts.trial: one.block for one in counted}


def cells_by(
    asked: AskedMatrix, counted: Sequence[Counted], blocks: Mapping[str, str]
) -> tuple[MatrixCell, ...]:
    """Return what was counted in every cell, apart for each block.

    Args:
        asked: the matrix.
        counted: the trials.
        blocks: trial -> name of its block.
    """
    return tuple(
        MatrixCell(dict(cell.levels), counts, block)
        for cell in asked.cells
        for block in sorted(set(blocks.values()))
        if (
            counts := arm_counts(
                [c.facts for c in counted if blocks[c.facts.trial] == block],
                cell.name,
                asked.matrix.verdict.metric,
            )
        ).runs
    )


def _host_and_boot(counted: Sequence[Counted]) -> dict[str, str]:
    """Return the block of each trial: its host, numbered by boot where that changed."""
    boots: dict[str, list[str]] = {}
    order = [fact.trial for fact in in_order(one.facts for one in counted)]
    for one in sorted(counted, key=lambda one: order.index(one.facts.trial)):
        known = boots.setdefault(one.facts.host, [])
        if one.epoch not in known:
            known.append(one.epoch)
    return {
        one.facts.trial: one.facts.host
        if len(boots[one.facts.host]) == 1
        else f"{one.facts.host} boot {boots[one.facts.host].index(one.epoch) + 1}"
        for one in counted
    }


def _without_interactions(estimated: _Estimated) -> Iterable[str]:
    if estimated.effects is not None and estimated.failure:
        yield (
            "no interaction could be estimated, so each factor is judged without them: "
            + estimated.failure
        )


def _notes(asked: AskedMatrix, state: CampaignState, counted: Sequence[Counted]) -> Iterable[str]:
    for one in counted:
        for missed in one.facts.missed_triggers:
            yield f"{one.facts.trial} says nothing: {missed}"
        for why in not_countable(one.facts, asked.matrix.verdict.metric):
            yield f"{one.facts.trial} does not count: {why}"
    if asked.matrix.verdict.metric == "corruption":
        yield from _not_as_asked(counted)
    yield from _ran_alike(counted)
    yield from clock_steps(one.facts for one in counted)
    left = state.in_phase(RunPhase.WAITING, RunPhase.TAKEN)
    if left:
        yield f"{len(left)} of {len(state.runs)} runs were not made yet"
    if asked.matrix.matrix.order == "fewest_restarts":
        yield "runs of one service were made together: a drift in time looks like an effect of it"


def _not_as_asked(counted: Iterable[Counted]) -> Iterable[str]:
    """Yield where sessions lacked what was asked for, which alone is no corruption."""
    missing: dict[str, int] = {}
    sessions: dict[str, int] = {}
    for one in counted:
        count = sum(one.facts.counts.get(name, 0) for name in NOT_AS_ASKED)
        missing[one.cell] = missing.get(one.cell, 0) + count
        sessions[one.cell] = sessions.get(one.cell, 0) + one.facts.counted
    cells = sorted(
        (cell for cell in missing if missing[cell]), key=lambda cell: (-missing[cell], cell)
    )
    if cells:
        most = ", ".join(
            f"{missing[cell]}/{sessions[cell]} in {cell}" for cell in cells[:MOST_CELLS]
        )
        others = len(cells) - MOST_CELLS
        rest = f", and some in {others} more" if others > 0 else ""
        yield (
            "sessions without the call or the answer that was asked for (no_tool, no_answer), "
            f"which a model may do by itself and which are not in the rates: {most}{rest}"
        )


def _ran_alike(counted: Sequence[Counted]) -> Iterable[str]:
    """Yield cells whose processes had the same code and flags, and whose load was the same."""
    seen: dict[object, str] = {}
    for one in counted:
        facts = one.facts
        flags = sorted({tuple(sorted(process.items())) for process in facts.processes})
        ran = (tuple(sorted(facts.patches.items())), tuple(flags), facts.workload_sha256)
        other = seen.setdefault(ran, one.cell)
        if facts.processes and other != one.cell:
            yield f"{other} and {one.cell} ran the same code with the same flags"
            seen[ran] = one.cell


def write_report(asked: AskedMatrix, end: CampaignEnd, history: History) -> str:
    """Judge what a campaign measured, write its report in every form, and return it as text."""
    counted = counted_of(end.state, end.results)
    report = report_matrix(
        asked,
        end.state,
        counted,
        history=matching_dispersion(
            history, [one.facts for one in counted], asked.matrix.verdict.metric
        ),
        run_id=end.folder.run_id,
        reused=len(end.reused),
        as_found=notes_of(end.folder),
    )
    text = render(report)
    end.folder.write("report.txt", text.encode())
    end.folder.write("report.md", markdown(report).encode())
    end.folder.write_json("report.json", as_json(report))
    return text
