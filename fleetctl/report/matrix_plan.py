"""What a matrix would do, before any host is touched: cells, order, host time, what it can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fleetctl.analysis.matrix_power import EffectPower
from fleetctl.analysis.power import Assumed
from fleetctl.report.metrics import about_metric
from fleetctl.report.numbers import count, percent
from fleetctl.report.tables import Table
from fleetctl.report.terminal import bullets, headed, section, wrapped

SCHEMA = "fleetctl.matrix-plan/1"
SHOWN_RUNS = 24


@dataclass(frozen=True)
class PlannedCell:
    """A cell.

    Attributes:
        name: its levels.
        digest: content hash on the first block, 12 hex digits.
        runs: how many there are.
        measured: how many of them an earlier run has.
    """

    name: str
    digest: str
    runs: int
    measured: int


@dataclass(frozen=True)
class PlannedBlock:
    """Equal hosts.

    Attributes:
        name: the labels that make them equal.
        sites: names.
        at_once: how many of them are measured at once.
        runs: of all cells, to be made there.
        left: runs that no earlier run has.
        wall_s: how long the rest takes; None while nobody knows how long a run takes.
    """

    name: str
    sites: tuple[str, ...]
    at_once: int
    runs: int
    left: int
    wall_s: float | None


@dataclass(frozen=True)
class MatrixPlan:
    """What a matrix would do.

    Attributes:
        cells: the baseline first.
        order: (cell, run, block) of each run.
        homes: the site that takes each run first; empty where sites take what comes.
        blocks: where they are made.
        effects: what the main effects can show.
        assumed: what that assumes.
        baseline_rate: likewise.
        run_s: time of one run on one host, measured earlier; None where nobody has.
        earlier: id of the run whose results `--resume` would reuse; empty without one.
        resolution: of the fraction; `full` for none.
        aliases: effect -> effects that can't be told from it.
        touched: host -> files that cells change there.
        lent: host -> number of directories for compiled kernels, lent there for the whole run.
        absent: site -> why it could not be looked at.
        notes: what the author should know.
    """

    name: str
    cells: tuple[PlannedCell, ...]
    order: tuple[tuple[str, int, str], ...]
    blocks: tuple[PlannedBlock, ...]
    effects: tuple[EffectPower, ...]
    assumed: Assumed
    baseline_rate: float
    run_s: float | None = None
    earlier: str = ""
    resolution: str = "full"
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)
    touched: Mapping[str, Sequence[str]] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    lent: Mapping[str, int] = field(default_factory=dict)


def headline(plan: MatrixPlan) -> str:
    """Return the size of the matrix in one sentence."""
    runs = sum(block.runs for block in plan.blocks)
    left = sum(block.left for block in plan.blocks)
    sites = count(sum(len(block.sites) for block in plan.blocks), "site")
    told = f"{count(len(plan.cells), 'cell')}, {count(runs, 'run')} on {sites}"
    if left != runs:
        told += f"; {runs - left} are measured already, {left} are left"
    return f"{told}."


def time_lines(plan: MatrixPlan) -> list[str]:
    """Return how long it takes, block by block."""
    if plan.run_s is None:
        return ["host time: unknown until a first run of this matrix has been made"]
    lines = [f"one run takes about {_spelled(plan.run_s)} of host time"]
    return lines + [
        f"{block.name}: {count(block.left, 'run')} left, {block.at_once} at once: about "
        f"{_spelled(block.wall_s)}"
        for block in plan.blocks
        if block.wall_s is not None
    ]


def _spelled(length_s: float) -> str:
    if length_s < 120:
        return f"{length_s:.0f} s"
    minutes = round(length_s / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def fraction_lines(plan: MatrixPlan) -> list[str]:
    """Return the resolution of a fraction, and what it can't tell apart."""
    if plan.resolution == "full":
        return []
    return [
        f"a fraction of resolution {plan.resolution}: what stands in one line can't be told apart",
        *(f"{effect} = {' = '.join(same)}" for effect, same in plan.aliases.items()),
    ]


def cells_table(plan: MatrixPlan) -> Table:
    """Return every cell with what is measured of it."""
    rows = tuple(
        (cell.name, cell.digest, str(cell.runs), str(cell.measured)) for cell in plan.cells
    )
    return Table("Cells (the first is the baseline)", ("cell", "content", "runs", "measured"), rows)


def power_table(plan: MatrixPlan) -> Table:
    """Return what each main effect can show."""
    base, wanted = percent(plan.baseline_rate), percent(plan.assumed.power)
    title = (
        f"Main effects, from {base} on average at the baseline's level, {wanted} power, "
        f"level {plan.assumed.alpha:g} shared by {len(plan.effects)}"
    )
    header = ("factor=level", "runs", "seen at or below", "halved is seen with", "runs for a half")
    rows = tuple(
        (
            f"{one.factor}={one.level}",
            f"{one.baseline_runs} and {one.runs}",
            "nothing" if one.smallest_visible is None else percent(one.smallest_visible),
            percent(one.halved),
            "too many" if one.runs_for_half is None else f"{one.runs_for_half} and as many",
        )
        for one in plan.effects
    )
    return Table(title, header, rows)


def order_lines(plan: MatrixPlan) -> list[str]:
    """Return the order of the runs, the first ones of a long one."""
    shown = plan.order[:SHOWN_RUNS]
    many = len({block for _, _, block in plan.order}) > 1
    places = plan.homes or [block if many else "" for _, _, block in plan.order]
    lines = [
        f"{number:>4}  {cell}  run {run + 1}" + (f"  on {place}" if place else "")
        for number, ((cell, run, _), place) in enumerate(zip(shown, places, strict=False), start=1)
    ]
    hidden = len(plan.order) - len(shown)
    return [*lines, f"      and {hidden} more; --json lists them"] if hidden else lines


def render(plan: MatrixPlan) -> str:
    """Return the plan as plain text; ends with a line feed."""
    touched = [f"{host}: {path}" for host, paths in plan.touched.items() for path in paths]
    lent = [f"{host}: {number}" for host, number in plan.lent.items() if number]
    absent = [f"{site} can't be used now: {why}" for site, why in plan.absent.items()]
    reuse = (
        [f"run {plan.earlier} has results of this matrix: --resume {plan.earlier} reuses them"]
        if plan.earlier
        else []
    )
    sections = [
        [plan.name, "", *wrapped(headline(plan))],
        bullets([*reuse, *absent, *about_metric(plan.assumed.metric), *plan.notes]),
        section(cells_table(plan)),
        headed("Fraction", bullets(fraction_lines(plan))),
        section(power_table(plan)),
        headed("Time", bullets(time_lines(plan))),
        headed("Order", order_lines(plan)),
        headed("Files that cells change", touched),
        headed("Directories lent for compiled kernels, for the whole run", lent),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def as_json(plan: MatrixPlan) -> dict[str, Any]:
    """Return the plan as plain values."""
    return {"schema": SCHEMA, "sentence": headline(plan), **asdict(plan)}
