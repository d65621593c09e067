"""What a matrix would do and can show, told before any host is touched."""

import json

from fleetctl.analysis.matrix_effects import Factor
from fleetctl.analysis.matrix_power import main_effect_power
from fleetctl.analysis.power import Assumed
from fleetctl.report.matrix_plan import MatrixPlan, PlannedBlock, PlannedCell, as_json, render

FACTORS = [Factor("runner", ("captured", "eager")), Factor("probe", ("none", "ge", "canary"))]
CELLS = [{"runner": r, "probe": p} for r in FACTORS[0].levels for p in FACTORS[1].levels]


def effects(runs=4):
    return main_effect_power(FACTORS, CELLS, runs, 0.15, Assumed(40))


def plan(**more):
    cells = tuple(PlannedCell(f"cell-{n}", "ab" * 6, 2, 1) for n in range(3))
    order = tuple((f"cell-{n % 3}", n // 3, "gpu=h200") for n in range(30))
    blocks = (PlannedBlock("gpu=h200", ("h1", "h2"), 2, 30, 28, 1400.0),)
    return MatrixPlan("m", cells, order, blocks, effects(), Assumed(40), 0.15, **more)


def test_a_level_with_more_runs_sees_more_and_the_level_is_shared():
    runner, ge, canary = effects()

    assert (runner.baseline_runs, runner.runs) == (12, 12)
    assert (ge.baseline_runs, ge.runs) == (8, 8)
    assert runner.halved > ge.halved == canary.halved
    assert runner.smallest_visible > ge.smallest_visible
    alone = main_effect_power(FACTORS[:1], CELLS, 4, 0.15, Assumed(40))
    assert alone[0].halved > runner.halved


def test_a_fix_that_was_measured_where_the_fault_is_is_compared_with_that_cell_only():
    cells = [*CELLS, {"runner": "fixed", "probe": "none"}]
    factors = [Factor("runner", ("captured", "eager", "fixed")), FACTORS[1]]

    found = main_effect_power(factors, cells, 4, 0.15, Assumed(40))

    assert [(one.level, one.baseline_runs, one.runs) for one in found] == [
        ("eager", 12, 12),
        ("fixed", 4, 4),
        ("ge", 8, 8),
        ("canary", 8, 8),
    ]


def test_one_run_sees_nothing_and_says_so():
    only = main_effect_power(FACTORS[:1], CELLS[:1] + CELLS[3:4], 1, 0.15, Assumed(40))

    assert only[0].smallest_visible is None
    assert only[0].halved == 0.0


def test_the_plan_tells_cells_order_time_power_and_what_is_measured():
    told = render(plan(run_s=100.0, earlier="r-1", absent={"h9": "held by bob"}))

    assert "3 cells, 30 runs on 2 sites; 2 are measured already, 28 are left." in told
    assert "--resume r-1 reuses them" in " ".join(told.split())
    assert "h9 can't be used now: held by bob" in told
    assert "28 runs left, 2 at once: about 23 min" in told
    assert "runner=eager" in told
    assert "and 6 more; --json lists them" in told
    assert max(len(line) for line in told.splitlines()) <= 100


def test_a_fraction_says_its_resolution_and_its_aliases():
    told = render(plan(resolution="III", aliases={"a": ["b x c"]}))

    assert "a fraction of resolution III" in told
    assert "a = b x c" in told
    assert "host time: unknown" in told


def test_the_json_holds_the_whole_order():
    value = json.loads(json.dumps(as_json(plan())))

    assert value["schema"] == "fleetctl.matrix-plan/1"
    assert len(value["order"]) == 30


def test_directories_of_compiled_kernels_are_counted_and_not_listed_as_files_that_cells_change():
    told = render(plan(touched={"h1": ("/s.sh",), "h2": ()}, lent={"h1": 27, "h2": 0}))

    assert told.endswith(
        "Files that cells change\n  h1: /s.sh\n\n"
        "Directories lent for compiled kernels, for the whole run\n  h1: 27\n"
    )
