"""Simulated operating characteristics."""

import numpy as np
import pytest

from fleetctl.analysis.counts import arm
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.qbf import qbf_test
from fleetctl.analysis.sequential import Block, evalue_permuted_blocks
from fleetctl.analysis.simulate import (
    Truth,
    block_evalue_rejection,
    draw_runs,
    qbf_p_rows,
    qbf_rejection,
)


def test_the_simulated_test_is_the_real_one():
    control = np.array([[6, 5, 7], [0, 0, 0], [3, 3, 3]])
    treatment = np.array([[2, 2, 5], [0, 0, 0], [0, 1, 12]])

    told = qbf_p_rows(control, treatment, 40, np.full(3, 11 * 1.3), 11)

    sizes = [40] * 3
    for b, c, p in zip(control, treatment, told, strict=True):
        arms = (arm("control", list(b), sizes), arm("treatment", list(c), sizes))
        assert qbf_test(*arms, Dispersion(1.3, 11)).p == pytest.approx(p)


def test_the_simulated_evalue_stops_where_the_real_one_does():
    sure = Truth(1.0, 0.0)

    assert block_evalue_rejection(sure, 4, (2, 2), seed=1, experiments=10) == 0.0
    assert block_evalue_rejection(sure, 6, (2, 2), seed=1, experiments=10) == 1.0
    block = Block((40, 40), (0, 0))
    assert evalue_permuted_blocks([block] * 2) < 20 < evalue_permuted_blocks([block] * 3)


def test_a_seed_repeats_a_result():
    truth = Truth(0.15, 0.05, rho=0.05, history_runs=6)

    found = [qbf_rejection(truth, 3, seed=5, experiments=500) for _ in range(2)]

    assert found[0] == found[1]


def test_a_sure_rate_is_drawn_without_correlation():
    drawn = draw_runs(np.random.default_rng(1), 1.0, 0.5, 40, (3, 2))

    assert (drawn == 40).all()
