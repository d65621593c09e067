"""Simulated operating characteristics of the rules that can't be enumerated.

All draw whole experiments at once; the seed is given, so a result can be repeated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from fleetctl.analysis.sequential import PSI


@dataclass(frozen=True)
class Truth:
    """The world that experiments are drawn from.

    Attributes:
        p_control: rate of the control.
        p_treatment: rate of the treatment.
        rho: correlation inside runs.
        run_size: sessions per run.
        history_runs: A/A runs at the control's rate, drawn anew for each experiment.
    """

    p_control: float
    p_treatment: float
    rho: float = 0.0
    run_size: int = 40
    history_runs: int = 0


def draw_runs(
    rng: np.random.Generator, p: float, rho: float, run_size: int, shape: tuple[int, ...]
) -> np.ndarray:
    """Return bad sessions of beta-binomial runs, in the given shape."""
    if rho <= 0 or p in (0, 1):
        return np.asarray(rng.binomial(run_size, p, size=shape))
    scale = 1 / rho - 1
    rates = rng.beta(p * scale, (1 - p) * scale, size=shape)
    return np.asarray(rng.binomial(run_size, rates))


def pearson_rows(bad: np.ndarray, run_size: int) -> np.ndarray:
    """Return Pearson's X2 of each row of runs; 0 where nothing or all is bad."""
    rate = bad.mean(axis=1) / run_size
    variance = run_size * rate * (1 - rate)
    spread = ((bad - run_size * rate[:, None]) ** 2).sum(axis=1)
    return np.asarray(np.divide(spread, variance, out=np.zeros_like(spread), where=variance > 0))


def qbf_p_rows(
    control: np.ndarray, treatment: np.ndarray, run_size: int, x2_history: np.ndarray, d0: int
) -> np.ndarray:
    """Return the main test's p of each experiment; 1 where no session is bad.

    Args:
        control: bad sessions, [experiments, runs].
        treatment: bad sessions, [experiments, runs].
        run_size: sessions per run.
        x2_history: d0 times phi0 of each experiment's history, [experiments].
        d0: degrees of freedom of the history.
    """
    runs = control.shape[1]
    df = 2 * (runs - 1) + d0
    x2 = x2_history + pearson_rows(control, run_size) + pearson_rows(treatment, run_size)
    phi = np.maximum(1.0, x2 / df)
    pb, pc = control.mean(axis=1) / run_size, treatment.mean(axis=1) / run_size
    pooled = (pb + pc) / 2
    error = np.sqrt(phi * pooled * (1 - pooled) * 2 / (runs * run_size))
    t = np.divide(pc - pb, error, out=np.zeros_like(error), where=error > 0)
    return np.asarray(2 * stats.t.sf(np.abs(t), df))


def _history_x2(rng: np.random.Generator, truth: Truth, experiments: int) -> np.ndarray:
    shape = (experiments, truth.history_runs)
    if not truth.history_runs:
        return np.zeros(experiments)
    runs = draw_runs(rng, truth.p_control, truth.rho, truth.run_size, shape)
    return pearson_rows(runs, truth.run_size)


def qbf_rejection(
    truth: Truth, runs: int, *, seed: int, experiments: int = 20_000, alpha: float = 0.05
) -> float:
    """Return how often the main test rejects after `runs` runs in each arm."""
    return group_sequential_rejection(truth, (runs,), (alpha,), seed=seed, experiments=experiments)


def group_sequential_rejection(
    truth: Truth,
    looks: Sequence[int],
    nominal_p: Sequence[float],
    *,
    seed: int,
    experiments: int = 20_000,
) -> float:
    """Return how often the main test rejects at any of the looks (runs in each arm)."""
    rng = np.random.default_rng(seed)
    shape = (experiments, looks[-1])
    control = draw_runs(rng, truth.p_control, truth.rho, truth.run_size, shape)
    treatment = draw_runs(rng, truth.p_treatment, truth.rho, truth.run_size, shape)
    x2_history, d0 = _history_x2(rng, truth, experiments), max(truth.history_runs - 1, 0)
    rejected = np.zeros(experiments, dtype=bool)
    for look, level in zip(looks, nominal_p, strict=True):
        p = qbf_p_rows(control[:, :look], treatment[:, :look], truth.run_size, x2_history, d0)
        rejected |= p < level
    return float(rejected.mean())


def block_evalue_rejection(
    truth: Truth,
    runs: int,
    block: tuple[int, int],
    *,
    seed: int,
    threshold: float = 20.0,
    psi: Sequence[float] = PSI,
    experiments: int = 20_000,
) -> float:
    """Return how often the permuted-block e-value reaches `threshold` at the end of any block.

    `block` is (control runs, treatment runs) of one block; `runs` is the most per arm.
    """
    rng = np.random.default_rng(seed)
    logs = np.zeros((2 * len(psi), experiments))
    crossed = np.zeros(experiments, dtype=bool)
    for _ in range(runs // max(block)):
        control = draw_runs(
            rng, truth.p_control, truth.rho, truth.run_size, (experiments, block[0])
        )
        treatment = draw_runs(
            rng, truth.p_treatment, truth.rho, truth.run_size, (experiments, block[1])
        )
        both = np.concatenate([control, treatment], axis=1)
        logs += _block_logs(both, block[0], psi)
        mixture = special.logsumexp(logs, axis=0) - math.log(len(logs))
        crossed |= mixture >= math.log(threshold)
    return float(crossed.mean())


def _block_logs(runs: np.ndarray, controls: int, psi: Sequence[float]) -> np.ndarray:
    """Return the log e-value of one block; [psi and direction, experiments]."""
    chosen = list(itertools.combinations(range(runs.shape[1]), controls))
    sums = np.stack([runs[:, list(picked)].sum(axis=1) for picked in chosen])
    rows = []
    for base, direction in itertools.product(psi, (1, -1)):
        log_psi = direction * math.log(base)
        mean = special.logsumexp(log_psi * sums, axis=0) - math.log(len(chosen))
        rows.append(log_psi * sums[0] - mean)
    return np.stack(rows)
