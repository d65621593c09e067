"""A matrix: every cell is an arm; cells are dealt out to the sites, the baseline first and last."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetctl.analysis.counts import ArmCounts
from fleetctl.analysis.design import Slot
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.matrix_effects import Factor, MatrixCell, matrix_effects
from fleetctl.errors import InputError
from fleetctl.report.matrix import MatrixReport
from fleetctl.spec.arms import arm_from, flags_of
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.loader import load_matrix
from fleetctl.spec.matrix import Cell, Matrix
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.facts import TrialFacts, arm_counts
from fleetctl.workflow.fleet_run import Measured, measure_sites, open_folder, plan_all
from fleetctl.workflow.job import Job, job_of
from fleetctl.workflow.prepare import SitePlan
from fleetctl.workflow.reach import reached
from fleetctl.workflow.site import sites_of


@dataclass(frozen=True)
class AskedMatrix:
    """A matrix, read and checked."""

    path: Path
    matrix: Matrix
    cells: tuple[Cell, ...]
    job: Job


def read_matrix(path: Path) -> AskedMatrix:
    """Return a matrix with everything that can be known without a host.

    Raises:
        InputError: something in it can't be.
    """
    matrix = load_matrix(path)
    cells = matrix.cells()
    arms = [
        arm_from(cell.name, cell.patches, flags_of(dict(cell.env)), spec_path=path)
        for cell in cells
    ]
    return AskedMatrix(path, matrix, cells, job_of(matrix, path, arms, kind="matrix"))


def run_matrix(edges: Edges, inventory: Inventory, asked: AskedMatrix) -> Measured:
    """Measure every cell and leave the hosts as found.

    Raises:
        FleetError: with the exit code that tells the state of the hosts.
    """
    with reached(edges, inventory, asked.job.target) as hosts:
        plans = plan_all(edges, inventory, sites_of(hosts), asked.job)
        folder = open_folder(edges, asked.job, plans)
        return measure_sites(edges, folder, asked.job, plans, deal_cells(plans, asked))


def deal_cells(plans: Sequence[SitePlan], asked: AskedMatrix) -> dict[str, list[Slot]]:
    """Deal cells x runs out to the sites in a seeded order.

    Every repetition is shuffled by itself, so that drift meets all cells alike.
    """
    dice = random.Random(f"{asked.matrix.trials.seed}/matrix")  # noqa: S311 - an order, not a secret
    dealt: dict[str, list[Slot]] = {plan.site.name: [] for plan in plans}
    names = list(dealt)
    position = 0
    for run in range(asked.matrix.trials.runs):
        cells = list(asked.cells)
        dice.shuffle(cells)
        for cell in cells:
            site = names[position % len(names)]
            dealt[site].append(Slot(len(dealt[site]), cell.name, run, None))
            position += 1
    return dealt


def report_matrix(
    asked: AskedMatrix, facts: Sequence[TrialFacts], history: Dispersion | None
) -> MatrixReport:
    """Return the table of cells and what each factor does."""
    factors = tuple(
        Factor(
            factor.name,
            _baseline_first(asked.matrix, factor.name, [level.name for level in factor.level]),
            factor.observer,
        )
        for factor in asked.matrix.factor
    )
    cells = tuple(
        MatrixCell(dict(cell.levels), counts, host)
        for cell in asked.cells
        for host in sorted({fact.host for fact in facts})
        if (counts := _counts(facts, cell, host)).runs
    )
    try:
        effects = matrix_effects(factors, cells, asked.matrix.matrix.interactions, history)
    except InputError as error:
        return MatrixReport(asked.matrix.experiment.name, factors, cells, None, str(error))
    return MatrixReport(asked.matrix.experiment.name, factors, cells, effects)


def _counts(facts: Sequence[TrialFacts], cell: Cell, host: str) -> ArmCounts:
    return arm_counts([fact for fact in facts if fact.host == host], cell.name)


def _baseline_first(matrix: Matrix, factor: str, levels: list[str]) -> tuple[str, ...]:
    baseline = matrix.matrix.baseline[factor]
    return (baseline, *(level for level in levels if level != baseline))
