"""A matrix, read: its cells, what stands on the hosts in each, their content hashes, the order."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.analysis.factorial import Fraction, fraction_of
from fleetctl.analysis.matrix_hosts import Terms, balanced_order
from fleetctl.analysis.matrix_order import (
    OrderedRun,
    deal_replicates,
    fewest_restarts_order,
    seeded_order,
)
from fleetctl.errors import InputError
from fleetctl.spec.arms import Arm, arm_from, flags_of
from fleetctl.spec.cells import Cell
from fleetctl.spec.experiment import Workload
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.loader import load_matrix
from fleetctl.spec.matrix import Matrix
from fleetctl.store.campaign import CellRun
from fleetctl.workflow.job import Job, job_of
from fleetctl.workflow.prepare import SitePlan
from fleetctl.workflow.site import NamedSite, named_sites

_ID_DIGITS = 16


@dataclass(frozen=True)
class AskedMatrix:
    """A matrix, read and checked.

    Attributes:
        cells: the baseline first.
        job: whose arms are what has to stand on the hosts, each once.
    """

    path: Path
    matrix: Matrix
    cells: tuple[Cell, ...]
    job: Job

    def cell(self, name: str) -> Cell:
        """Return the cell of that name.

        Raises:
            InputError: the matrix has none.
        """
        for cell in self.cells:
            if cell.name == name:
                return cell
        raise InputError(
            f"the matrix has no cell {name}",
            why=f"{self.path.name} was changed since the run began",
            next_step="go on with the file of the run, or start a new run",
        )

    def job_of(self, run: CellRun) -> Job:
        """Return the job of one cell run: the matrix's, with the cell's workload."""
        return replace(self.job, workload=self.cell(run.cell).workload)

    def digest(self, cell: Cell, block: str) -> str:
        """Return the content hash of a cell on equal hosts; see `content_digest`."""
        arm = next(arm for arm in self.job.arms if arm.name == cell.service)
        return content_digest(arm, cell.workload, block)

    @property
    def fraction(self) -> Fraction:
        """What the design can't tell apart."""
        generators = [(one.factor, one.parents) for one in self.matrix.generators]
        return fraction_of([factor.name for factor in self.matrix.factor], generators)


def content_digest(arm: Arm, workload: Workload, block: str) -> str:
    """Return a hash of everything that decides what a cell measures, 64 hex digits.

    The bytes of the patches and where they go, flags, workload and the labels of equal hosts
    count; names of cells, levels and files do not.
    """
    patches = sorted(
        [content.patch.kind, content.patch.target, content.digest] for content in arm.patches
    )
    said = [patches, sorted(arm.flags.items()), workload.model_dump(), block]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def read_matrix(path: Path) -> AskedMatrix:
    """Return a matrix with everything that can be known without a host.

    Raises:
        InputError: something in it can't be, or two of its cells are the same.
    """
    matrix = load_matrix(path)
    cells = matrix.cells()
    services: dict[str, Cell] = {}
    for cell in cells:
        services.setdefault(cell.service, cell)
    arms = [_arm(matrix, name, cell, path) for name, cell in services.items()]
    asked = AskedMatrix(path, matrix, cells, job_of(matrix, path, arms, kind="matrix"))
    _refuse_equal(asked, ((cell, (asked.digest(cell, ""),)) for cell in cells), "in their content")
    return asked


def _arm(matrix: Matrix, name: str, cell: Cell, path: Path) -> Arm:
    arm = arm_from(name, cell.patches, flags_of(dict(cell.env)), spec_path=path)
    return replace(arm, jit_shared_because=matrix.jit.reason) if matrix.jit.share else arm


def refuse_equal_on_host(asked: AskedMatrix, plan: SitePlan) -> None:
    """Refuse two cells that would leave the same bytes on a host and send it the same load.

    Raises:
        InputError: it names both.
    """
    for host in plan.hosts:
        said = (
            (cell, (*sorted(host.wanted[cell.service].items()), cell.workload))
            for cell in asked.cells
        )
        _refuse_equal(asked, said, f"on {host.reached.name}")


def _refuse_equal(
    asked: AskedMatrix, said: Iterable[tuple[Cell, tuple[object, ...]]], where: str
) -> None:
    seen: dict[tuple[object, ...], Cell] = {}
    for cell, content in said:
        other = seen.setdefault(content, cell)
        if other is not cell:
            differing = [
                f"{a[0]} {a[1]} and {b[1]}"
                for a, b in zip(other.levels, cell.levels, strict=True)
                if a != b
            ]
            raise InputError(
                f"two cells are equal {where}: {other.name} and {cell.name}",
                why=f"{asked.path.name} calls them different in {'; '.join(differing)}, and the "
                "same files and flags would run",
                next_step="let the levels differ in a patch, a flag or the workload, or drop one",
            )


def sites_of_blocks(sites: Iterable[NamedSite]) -> dict[str, int]:
    """Return how many sites each block has."""
    return dict(Counter(site.block for site in sites))


def cell_runs(asked: AskedMatrix, inventory: Inventory) -> tuple[CellRun, ...]:
    """Return every run of every cell in its order; the same file always gives the same runs.

    Raises:
        InputError: the target names nothing.
    """
    sites = named_sites(inventory, asked.job.target)
    order = order_on(asked, sites)
    digests = {
        (index, block): asked.digest(cell, block)
        for block in sites_of_blocks(sites)
        for index, cell in enumerate(asked.cells)
    }
    return tuple(
        CellRun(
            id=f"{digests[one.cell, one.block][:_ID_DIGITS]}.{one.run}",
            cell=asked.cells[one.cell].name,
            arm=asked.cells[one.cell].service,
            digest=digests[one.cell, one.block],
            run=one.run,
            block=one.block,
            position=position,
        )
        for position, one in enumerate(order)
    )


def order_on(asked: AskedMatrix, sites: Sequence[NamedSite]) -> tuple[OrderedRun, ...]:
    """Return the order of all runs on these sites; hosts of a block get alike cells.

    Runs of one service stay together where the matrix asks for the fewest restarts: then hosts
    take what comes, and cells may go along with them.
    """
    blocks = sites_of_blocks(sites)
    order = _order(asked, deal_replicates(asked.matrix.trials.runs, blocks))
    if asked.matrix.matrix.order != "seeded":
        return order
    return balanced_order(order, terms_of(asked), blocks, asked.matrix.trials.seed)


def terms_of(asked: AskedMatrix) -> Terms:
    """Return what must not go along with a host: factors and named interactions."""
    return Terms([dict(cell.levels) for cell in asked.cells], asked.matrix.matrix.interactions)


def _order(asked: AskedMatrix, dealt: Mapping[str, Sequence[int]]) -> tuple[OrderedRun, ...]:
    seed = asked.matrix.trials.seed
    if asked.matrix.matrix.order == "seeded":
        return seeded_order(len(asked.cells), dealt, seed)
    services = [cell.service for cell in asked.cells]
    distance = [
        [
            sum(a != b for a, b in zip(one.levels, other.levels, strict=True))
            for other in asked.cells
        ]
        for one in asked.cells
    ]
    return fewest_restarts_order(services, distance, dealt, seed)
