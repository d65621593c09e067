"""Which factor matters."""

import math

import numpy as np
import pytest

from fleetctl.analysis.counts import arm
from fleetctl.analysis.firth import firth_fit
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.matrix_effects import (
    Factor,
    MatrixCell,
    adjust_p,
    matrix_effects,
)
from fleetctl.errors import InputError

PATCH = Factor("patch", ("off", "on"))
CLONES = Factor("clones", ("off", "on"), observer=True)
LEVELS = [("off", "off"), ("on", "off"), ("off", "on"), ("on", "on")]


def cells(*runs, block=""):
    return [
        MatrixCell({"patch": patch, "clones": clones}, arm("x", bad, [40] * len(bad)), block)
        for (patch, clones), bad in zip(LEVELS, runs, strict=True)
    ]


def test_a_factor_that_removes_the_fault_is_found_and_the_other_is_not():
    found = matrix_effects([PATCH, CLONES], cells([6, 7], [0, 0], [5, 6], [0, 1]))

    patch, clones = found.effects
    assert found.method == "firth"
    assert patch.term == (("patch", "on"),)
    assert patch.log_odds < -1
    assert patch.p_holm < 0.01
    assert clones.p_holm > 0.3
    assert clones.observer
    assert patch.baseline_rate == pytest.approx(24 / 160)


def test_lumpy_runs_weaken_every_effect():
    even = matrix_effects([PATCH, CLONES], cells([6, 6], [1, 1], [6, 6], [1, 1]))
    lumpy = matrix_effects([PATCH, CLONES], cells([0, 12], [0, 2], [0, 12], [0, 2]))

    assert even.phi == 1.0
    assert lumpy.phi > 3
    assert lumpy.effects[0].p > 10 * even.effects[0].p
    width = [e.effects[0].interval.high - e.effects[0].interval.low for e in (even, lumpy)]
    assert width[1] == pytest.approx(width[0] * math.sqrt(lumpy.phi), rel=0.01)


def test_history_takes_part_in_the_dispersion():
    counts = cells([6, 7], [3, 3], [5, 6], [3, 3])

    found = matrix_effects([PATCH, CLONES], counts, history=Dispersion(4.0, 20))

    assert found.phi > 2
    assert found.df == 20 + 8 - 3


def test_one_run_per_effect_leaves_no_degrees_of_freedom():
    found = matrix_effects([PATCH, CLONES], cells([6], [2], [5], [1]), [("patch", "clones")])

    assert (found.phi, found.df) == (1.0, 0)
    assert len(found.effects) == 3


def test_declared_interactions_and_hosts_enter_the_model():
    both = cells([6, 7], [5, 6], [6, 5], [0, 0], block="a")
    both += cells([9, 9], [8, 8], [9, 8], [0, 1], block="b")

    found = matrix_effects([PATCH, CLONES], both, [("patch", "clones")])

    assert found.effects[2].term == (("patch", "on"), ("clones", "on"))
    assert found.effects[2].p_holm < 0.05
    assert found.spare == 16 - 5
    assert found.df == 12 - 4


def test_a_factor_is_judged_without_its_interactions_and_they_beside_it():
    counts = cells([12, 12], [4, 4], [12, 12], [12, 12])

    alone = matrix_effects([PATCH, CLONES], counts)
    (*factors, both) = matrix_effects([PATCH, CLONES], counts, [("patch", "clones")]).effects

    raw = [effect.log_odds for effect in alone.effects]
    assert [effect.log_odds for effect in factors] == pytest.approx(raw)
    assert both.log_odds > 1
    assert both.p < 0.05


def test_a_fault_that_takes_two_levels_at_once_is_seen_in_both_factors():
    """One of four cells has it: with their interaction fitted each effect alone is unknown."""
    counts = cells([7, 8], [0, 0], [0, 0], [0, 0])

    (patch, clones, both) = matrix_effects([PATCH, CLONES], counts, [("patch", "clones")]).effects

    assert patch.p_holm < 0.01
    assert clones.p_holm < 0.01
    assert both.p_holm > 0.05


def test_cells_that_are_never_bad_do_not_thin_out_the_spread_of_those_that_are():
    """Boots that share their luck are no effect of what differs between them."""
    keys = Factor("keys", ("bf16", "fp8"))
    three = [PATCH, CLONES, keys]
    lumpy = {("off", "off", "bf16"): [12, 3], ("off", "off", "fp8"): [1, 2]}
    counts = [
        MatrixCell(
            {"patch": patch, "clones": clones, "keys": key},
            arm("x", lumpy.get((patch, clones, key), [0, 0]), [40, 40]),
        )
        for patch, clones in LEVELS
        for key in keys.levels
    ]
    found = matrix_effects(three, counts)

    assert found.phi > 3
    assert found.df < 4
    assert found.effects[2].p > 0.05


def test_few_bad_sessions_are_told_by_exact_tables_inside_strata():
    found = matrix_effects([PATCH, CLONES], cells([3], [0], [4], [0]))

    assert found.method == "stratified exact"
    patch, clones = found.effects
    assert patch.p == pytest.approx(0.0134, abs=5e-4)
    assert patch.log_odds is None
    assert clones.p == pytest.approx(1.0)


def test_bad_sessions_of_one_boot_are_no_effect_however_few_there_are():
    spread = matrix_effects([PATCH, CLONES], cells([2, 2, 2], [0, 0, 0], [1, 1, 1], [0, 0, 0]))
    lump = matrix_effects([PATCH, CLONES], cells([6, 0, 0], [0, 0, 0], [0, 3, 0], [0, 0, 0]))

    assert [found.method for found in (spread, lump)] == ["stratified exact"] * 2
    assert (spread.phi, lump.phi > 3) == (1.0, True)
    assert spread.effects[0].p_holm < 0.05 < lump.effects[0].p_holm


def test_history_takes_part_in_exact_tables_too():
    counts = cells([3], [0], [4], [0])
    alone, known = (
        matrix_effects([PATCH, CLONES], counts, history=history)
        for history in (None, Dispersion(4.0, 20))
    )
    assert ((alone.phi, alone.df), (known.phi, known.df)) == ((1.0, 0), (4.0, 20))
    assert known.effects[0].p > 5 * alone.effects[0].p


def test_levels_beyond_two_are_each_compared_with_the_first():
    dtype = Factor("dtype", ("bf16", "fp8", "fp16"))
    counts = [
        MatrixCell({"dtype": level}, arm("x", bad, [40] * 2))
        for level, bad in (("bf16", [6, 6]), ("fp8", [0, 1]), ("fp16", [6, 7]))
    ]

    found = matrix_effects([dtype], counts)
    few = matrix_effects([dtype], [MatrixCell(c.levels, arm("x", [1], [40])) for c in counts])

    assert [effect.term[0][1] for effect in found.effects] == ["fp8", "fp16"]
    assert [effect.p for effect in few.effects] == pytest.approx([1.0, 1.0])


def test_no_bad_session_at_all_tells_nothing():
    found = matrix_effects([PATCH], [MatrixCell({"patch": "off"}, arm("x", [0], [40]))])

    assert found.effects[0].p is None
    assert found.effects[0].p_holm is None
    assert found.effects[0].level_rate is None


def test_effects_that_only_vary_together_are_an_error():
    together = cells([6, 7], [], [], [1, 0])

    with pytest.raises(InputError, match="can't be told apart"):
        matrix_effects([PATCH, CLONES], together)


def test_a_model_without_an_answer_is_an_error_and_not_a_blank(monkeypatch):
    from fleetctl.analysis import firth as module

    class NeverConverges(module.FirthLogisticRegression):
        def lrt(self, **options):
            super().lrt(**options)
            self.lrt_pvalues_ = np.full_like(self.lrt_pvalues_, np.nan)
            return self

    monkeypatch.setattr(module, "FirthLogisticRegression", NeverConverges)

    with pytest.raises(InputError, match="did not converge"):
        firth_fit([[0], [1]], [18, 9], [120, 120])


# 16 cells x 2 runs of 40 sessions at 10 %, on hosts drawn at random: host and bad of each run
HOSTS = "10111300030330033231010032233302"
BAD = "36524575351376378535642273264752"


def test_an_ordinary_table_on_which_a_warm_start_fails_has_an_answer_all_the_same():
    factors = [Factor(name, ("0", "1")) for name in "abcd"]
    levels = [dict(zip("abcd", f"{n:04b}", strict=True)) for n in range(16) for _ in range(2)]
    runs = zip(levels, HOSTS, BAD, strict=True)
    counts = [MatrixCell(at, arm("x", [int(bad)], [40]), host) for at, host, bad in runs]

    found = matrix_effects(factors, counts)

    assert [effect.p for effect in found.effects] == pytest.approx(
        [0.983, 0.448, 0.578, 0.106], abs=1e-3
    )


@pytest.mark.parametrize(("x0", "x1"), [(0, 0), (40, 40), (18, 0), (0, 40), (5, 7)])
def test_a_two_by_two_table_is_half_a_session_added_to_each_cell(x0, x1):
    fit = firth_fit([[0], [1]], [x0, x1], [40, 40])

    expected = math.log((x1 + 0.5) / (40.5 - x1)) - math.log((x0 + 0.5) / (40.5 - x0))
    assert fit.coefficients[0] == pytest.approx(expected, abs=1e-5)
    assert (fit.p[0] > 0.99) == (x0 == x1)


def test_a_matrix_in_which_every_session_is_bad_has_no_effect_rather_than_a_crash():
    found = matrix_effects([PATCH, CLONES], cells([40], [40], [40], [40]))

    assert [effect.p for effect in found.effects] == pytest.approx([1.0, 1.0], abs=1e-3)


def test_an_unknown_p_stays_unknown_and_is_no_comparison():
    assert adjust_p([0.01, None, 0.04]) == pytest.approx((0.02, None, 0.04))
    assert adjust_p([None, None]) == (None, None)


SPEED = Factor("speed", ("low", "mid", "high"))


def wide(levels, bad):
    return [
        MatrixCell({"patch": patch, "speed": speed}, arm("x", each, [40] * len(each)))
        for (patch, speed), each in zip(levels, bad, strict=True)
    ]


@pytest.mark.parametrize(
    ("missing", "untold"), [("high", {"high"}), ("mid", {"mid"}), ("low", {"mid", "high"})]
)
def test_a_level_that_never_started_costs_only_what_is_said_of_it(missing, untold):
    speeds = [speed for speed in SPEED.levels if speed != missing]
    levels = [(patch, speed) for patch in PATCH.levels for speed in speeds]
    counts = wide(levels, [[6, 7] if patch == "off" else [0, 1] for patch, _ in levels])

    found = matrix_effects([PATCH, SPEED], counts, [("patch", "speed")])

    told = {effect.term: effect for effect in found.effects}
    assert list(told)[:3] == [(("patch", "on"),), (("speed", "mid"),), (("speed", "high"),)]
    assert told[("patch", "on"),].p_holm < 0.01
    for level in ("mid", "high"):
        assert (told[("speed", level),].p is None) == (level in untold)
    pairs = {dict(term)["speed"] for term in told if len(term) == 2}
    assert pairs == {"mid", "high"} - untold


def test_where_one_cell_alone_was_measured_nothing_can_be_said_of_any_factor():
    counts = wide([("on", "mid")], [[9, 8]])

    found = matrix_effects([PATCH, SPEED], counts)

    assert [effect.p for effect in found.effects] == [None] * 3
