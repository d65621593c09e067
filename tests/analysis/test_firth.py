"""Many clean cells beside a few bad ones have an answer, with both ends of each interval."""

import itertools
import math

import pytest

from fleetctl.analysis.counts import arm
from fleetctl.analysis.firth import firth_fit
from fleetctl.analysis.matrix_effects import Factor, MatrixCell, matrix_effects

# bad sessions of 2 x 40 in each cell of experiments/matrix.toml, measured on a lab host; the cells
# that are left out here had none: runner, keys, overlap, indexer, probe
MEASURED = {
    ("captured", "bf16", "on", "transient", "none"): 9,
    ("captured", "bf16", "on", "transient", "ge_diff"): 8,
    ("captured", "bf16", "on", "transient", "canary"): 9,
    ("captured", "bf16", "on", "persistent_logits", "none"): 2,
    ("captured", "fp8", "on", "transient", "none"): 7,
    ("captured", "fp8", "on", "transient", "ge_diff"): 10,
    ("captured", "fp8", "on", "transient", "canary"): 8,
}
CLEAN_TOO = [
    *(("captured", "bf16", "on", fix, "none") for fix in ("persistent_all", "eager")),
    ("ordered_streams", "bf16", "on", "transient", "none"),
]
FULL = itertools.product(
    ("captured", "eager"),
    ("bf16", "fp8"),
    ("on", "off"),
    ("transient",),
    ("none", "ge_diff", "canary"),
)
CELLS = sorted({*FULL, *MEASURED, *CLEAN_TOO})


def columns(cell):
    runner, keys, overlap, indexer, probe = cell
    eager, ordered = (runner == "eager") - 1 / 3, (runner == "ordered_streams") - 1 / 3
    fp8, off = (keys == "fp8") - 1 / 2, (overlap == "off") - 1 / 2
    fixes = [(indexer == name) - 1 / 4 for name in ("persistent_logits", "persistent_all", "eager")]
    probes = [(probe == name) - 1 / 3 for name in ("ge_diff", "canary")]
    return [eager, ordered, fp8, off, *fixes, *probes, eager * off, eager * fp8, fp8 * off]


def fitted(bad_of, sessions=40):
    rows = [(cell, part) for cell in CELLS for part in (0, 1)]
    bad = [(bad_of.get(cell, 0) + part) // 2 for cell, part in rows]
    return firth_fit([columns(cell) for cell, _ in rows], bad, [sessions] * len(rows))


def test_the_shipped_matrix_as_measured_is_judged():
    fit = fitted(MEASURED)

    assert len(CELLS) == 28
    assert all(math.isfinite(end) for interval in fit.intervals for end in interval)
    overlap_off = 3
    assert fit.p[overlap_off] < 0.05
    assert fit.intervals[overlap_off].high < 0


def test_the_shipped_matrix_as_measured_says_what_a_reader_of_its_cells_would_say():
    """All bad sessions are captured with overlap; keys and probes make no difference there."""
    names = ("runner", "keys", "overlap", "indexer", "probe")
    first = ("captured", "bf16", "on", "transient", "none")
    levels = [dict.fromkeys([first[i], *(cell[i] for cell in CELLS)]) for i in range(5)]
    factors = [Factor(name, tuple(found)) for name, found in zip(names, levels, strict=True)]
    cells = [
        MatrixCell(
            dict(zip(names, cell, strict=True)),
            arm("x", [bad // 2, bad - bad // 2], [40, 40]),
        )
        for cell in CELLS
        for bad in [MEASURED.get(cell, 0)]
    ]
    declared = [("runner", "overlap"), ("runner", "keys"), ("keys", "overlap")]

    found = matrix_effects(factors, cells, declared)

    shown = {effect.term[0][1]: effect.log_odds for effect in found.effects if effect.p_holm < 0.05}
    assert set(shown) == {"eager", "ordered_streams", "off", "persistent_all"}
    assert all(odds < 0 for odds in shown.values())
    by_term = {effect.term: effect.p_holm for effect in found.effects}
    assert by_term[(("runner", "eager"),)] < 0.001
    assert by_term[(("overlap", "off"),)] < 0.001
    assert all(by_term[(("probe", level),)] > 0.9 for level in ("ge_diff", "canary"))


@pytest.mark.parametrize("left_out", [None, *MEASURED])
def test_so_is_every_table_like_it(left_out):
    bad = {cell: 3 * count for cell, count in MEASURED.items() if cell != left_out}

    fit = fitted(bad)

    for coefficient, (low, high) in zip(fit.coefficients, fit.intervals, strict=True):
        assert low < coefficient < high


def test_a_fit_does_not_depend_on_whether_numba_is_installed(monkeypatch):
    """Where a serving stack has brought it along, a report took many seconds of compilation."""
    design, bad, sessions = [[0.0], [1.0], [0.0], [1.0]], [9, 0, 8, 1], [40] * 4
    without = firth_fit(design, bad, sessions)

    monkeypatch.setattr("firthmodels.logistic.NUMBA_AVAILABLE", True)

    assert firth_fit(design, bad, sessions) == without
