"""How often the real `judge` errs, how often it sees an effect, and what peeking does to it.

    python benchmarks/statistics/bench_verdicts.py [--experiments 2000] [--write FILE]

Every experiment is drawn from beta-binomial runs and judged exactly as `fleetctl run` would:
counts in the executed order, positions and drawn blocks included, so that all guards take part.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fleetctl.analysis.counts import ArmCounts, Run, pearson
from fleetctl.analysis.design import Design, Order, Slot, schedule
from fleetctl.analysis.exact import fisher_peeking, fisher_type1
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import Word
from fleetctl.analysis.power import Assumed, power, runs_needed
from fleetctl.analysis.simulate import Truth, draw_runs, qbf_rejection
from fleetctl.analysis.verdict import judge

SEED = 20261129
BASE = 0.15
MOVED = (Word.ELIMINATED, Word.REDUCED, Word.WORSE)
TOLD = (Word.REDUCED, Word.ELIMINATED, Word.WORSE, Word.INCONCLUSIVE, Word.INVALID)
MOST_FALSE_ALARMS = 0.065
FACTS_TABLE = {0.075: (9, 13, 21), 0.05: (5, 8, 12), 0.03: (4, 5, 7), 0.0: (3, 3, 4)}
RHOS = (0.0, 0.02, 0.05)


@dataclass(frozen=True)
class World:
    """Where experiments are drawn from.

    Attributes:
        treatment: rate of the treatment; the control's is BASE.
        rho: correlation inside runs.
        runs: runs per arm.
        history_runs: A/A runs that lend their dispersion, drawn anew for each experiment.
        order: how the runs follow each other.
    """

    treatment: float
    rho: float
    runs: int
    history_runs: int = 0
    order: Order = Order.INTERLEAVED


class Draws:
    """Experiments of one world, from a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._rng = np.random.default_rng(seed)

    def experiments(self, count: int) -> Iterable[tuple[list[tuple[Slot, int]], Dispersion | None]]:
        """Yield the runs of each experiment in their order, and its history."""
        for number in range(count):
            slots = schedule(self.world.runs, self.world.order, number)
            yield [(slot, self._bad(slot.arm)) for slot in slots], self._history()

    def _bad(self, arm: str) -> int:
        p = BASE if arm == "control" else self.world.treatment
        return int(draw_runs(self._rng, p, self.world.rho, 40, (1,))[0])

    def _history(self) -> Dispersion | None:
        if not self.world.history_runs:
            return None
        bad = draw_runs(self._rng, BASE, self.world.rho, 40, (self.world.history_runs,))
        runs = tuple(Run(int(x), 40) for x in bad)
        x2, df = pearson(ArmCounts("history", runs).clusters)
        return Dispersion(x2 / df, df, ("drawn",))


def arms_of(measured: Sequence[tuple[Slot, int]]) -> tuple[ArmCounts, ArmCounts]:
    """Return the arms of what was measured so far."""
    arms = []
    for name in ("control", "treatment"):
        own = [(slot, bad) for slot, bad in measured if slot.arm == name]
        runs = tuple(
            Run(bad, 40, infra=0, position=slot.position, block=slot.block) for slot, bad in own
        )
        arms.append(ArmCounts(name, runs))
    return arms[0], arms[1]


def words(
    world: World, count: int, seed: int = SEED, design: Design | None = None
) -> Counter[Word]:
    """Return how often each verdict was given at the planned end."""
    planned = design or Design(runs=world.runs)
    tally: Counter[Word] = Counter()
    for measured, history in Draws(world, seed).experiments(count):
        tally[judge(*arms_of(measured), design=planned, history=history).word] += 1
    return tally


def peeking(world: World, count: int, *, everywhere: bool) -> tuple[float, float]:
    """Return how often a sequential trial says an effect, and its mean runs per arm.

    `everywhere` looks after every run from the second on, else only at the declared looks.
    """
    design = Design(runs=world.runs, looks=(4, 6))
    moved, lengths = 0, []
    for measured, history in Draws(world, SEED + 7).experiments(count):
        declared = [_length_of(measured, look) for look in design.declared_looks]
        for length in range(2, len(measured) + 1) if everywhere else declared:
            arms = arms_of(measured[:length])
            if judge(*arms, design=design, history=history).word in MOVED:
                moved += 1
                break
        lengths.append(length / 2)
    return moved / count, float(np.mean(lengths))


def _length_of(measured: Sequence[tuple[Slot, int]], runs: int) -> int:
    """Return the position after which both arms have so many runs."""
    seen: Counter[str] = Counter()
    for length, (slot, _) in enumerate(measured, start=1):
        seen[slot.arm] += 1
        if min(seen["control"], seen["treatment"]) >= runs:
            return length
    return len(measured)


def share(tally: Counter[Word], *wanted: Word) -> float:
    """Return the share of some verdicts."""
    return sum(tally[word] for word in wanted) / sum(tally.values())


def false_alarms(count: int) -> Iterator[str]:
    """Yield the table of verdicts when nothing differs."""
    yield from (
        f"## Nothing differs (15 % in both arms): what `judge` says ({count} experiments each)",
        "",
        "| runs | ICC | history | false alarm | no effect | inconclusive | invalid |"
        " Fisher alone |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    )
    for runs, rho, history in (
        (3, 0.0, 0), (3, 0.05, 0), (3, 0.05, 12), (3, 0.1, 12),
        (6, 0.05, 0), (6, 0.05, 12), (8, 0.05, 12),
    ):  # fmt: skip
        tally = words(World(BASE, rho, runs, history), count)
        alarm = share(tally, *MOVED)
        mark = "" if rho > 0.05 or alarm <= MOST_FALSE_ALARMS else " **too many**"
        yield (
            f"| {runs} + {runs} | {rho:g} | {history or 'none'} | {alarm:.3f}{mark} |"
            f" {share(tally, Word.NO_EFFECT):.3f} | {share(tally, Word.INCONCLUSIVE):.3f} |"
            f" {share(tally, Word.INVALID):.3f} | {fisher_type1(BASE, rho, runs, 40):.3f} |"
        )


def seen_effects(count: int) -> Iterator[str]:
    """Yield the table of verdicts when the treatment helps."""
    yield from (
        f"## The treatment helps: what `judge` says ({count} experiments each)",
        "",
        "| 15 % to | runs | ICC | history | reduced | eliminated | worse | inconclusive |"
        " invalid |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    )
    for rate, runs, rho, history in (
        (0.05, 3, 0.0, 12), (0.05, 6, 0.05, 12), (0.075, 8, 0.0, 0),
        (0.0, 3, 0.05, 0), (0.0, 8, 0.0, 12), (0.02, 8, 0.0, 12), (0.02, 8, 0.05, 12),
    ):  # fmt: skip
        tally = words(World(rate, rho, runs, history), count)
        shares = " | ".join(f"{share(tally, word):.3f}" for word in TOLD)
        yield (f"| {100 * rate:g} % | {runs} + {runs} | {rho:g} | {history or 'none'} | {shares} |")


def power_rows() -> Iterator[str]:
    """Yield the table of runs needed: ours, the published one, and the simulated power."""
    yield from (
        "## Runs of 40 sessions per arm for 80 % power from 15 %",
        "",
        "Ours (published); then the power at our number by formula / by 40,000 simulated"
        " experiments.",
        "",
        "| to | " + " | ".join(f"ICC {rho:g}" for rho in RHOS) + " |",
        "| --- | --- | --- | --- |",
    )
    for rate, published in FACTS_TABLE.items():
        cells = []
        for rho, told in zip(RHOS, published, strict=True):
            assumed = Assumed(rho=rho)
            runs = runs_needed(BASE, rate, assumed) or 0
            simulated = qbf_rejection(Truth(BASE, rate, rho), runs, seed=SEED, experiments=40_000)
            cells.append(
                f"{runs} ({told}): {power(BASE, rate, runs, assumed):.3f} / {simulated:.3f}"
            )
        yield (f"| {100 * rate:g} % | " + " | ".join(cells) + " |")


def peeking_rows(count: int) -> Iterator[str]:
    """Yield the table of peeking rules."""
    yield from (
        f"## Peeking: 8 + 8 runs in drawn blocks, 12 history runs ({count} experiments each)",
        "",
        "| rule | truth | ICC | says an effect | mean runs per arm |",
        "| --- | --- | --- | --- | --- |",
    )
    for rho in (0.0, 0.05):
        naive = fisher_peeking(BASE, 40, 8, rho=rho)[-1]
        yield (f"| Fisher after every pair of runs (exact) | no effect | {rho:g} | {naive:.3f} | |")
    for name, everywhere in (("declared looks 4, 6, 8", False), ("a look after every run", True)):
        for rate, rho in ((BASE, 0.0), (BASE, 0.05), (0.05, 0.0), (0.05, 0.05)):
            world = World(rate, rho, 8, 12, Order.RANDOMISED)
            said, runs = peeking(world, count, everywhere=everywhere)
            truth = "no effect" if rate == BASE else "15 % to 5 %"
            yield (f"| {name} | {truth} | {rho:g} | {said:.3f} | {runs:.1f} |")


def everything(count: int) -> Iterator[str]:
    """Yield the whole report, line by line as it comes about."""
    yield from (
        "# What the verdicts are worth",
        "",
        f"`python benchmarks/statistics/bench_verdicts.py --experiments {count}`, seed {SEED}.",
        "Every experiment goes through the real `judge` with all guards. The standard error of a",
        f"share near 0.05 is {(0.0475 / count) ** 0.5:.3f} with {count} experiments and"
        f" {(0.0475 / (count // 4)) ** 0.5:.3f} with {count // 4}.",
        "",
    )
    yield from false_alarms(count)
    yield ""
    yield from seen_effects(count // 2)
    yield ""
    yield from power_rows()
    yield ""
    yield from peeking_rows(count // 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=2000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    began_s = time.perf_counter()
    lines = []
    for line in everything(options.experiments):
        print(line, flush=True)
        lines.append(line)
    print(f"\n{time.perf_counter() - began_s:.0f} s")
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
