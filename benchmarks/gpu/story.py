"""The story on a GPU: `python3 -m benchmarks.gpu.story sweep|table --out DIR`.

`sweep` looks for knobs (depth of the main branch, top-k, precision of its products) under which the
race shows; `table` counts corrupt sessions and wrong tokens of every combination of variants. No
number is made: a token is wrong because two streams shared bytes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import story_timeline
from benchmarks.gpu.story_cells import INSTRUMENTS, Cell, Load, Oracle, run_cell

Result = dict[str, Any]


class Budget:
    """Wall time that is left: device time is lent."""

    def __init__(self, seconds: float) -> None:
        self._end = time.perf_counter() + seconds

    @property
    def is_spent(self) -> bool:
        """Whether to stop."""
        return time.perf_counter() > self._end


def cells() -> list[Cell]:
    """Return every combination that exists, the most telling first: time may run out.

    An eager step has no graph to stash into, and nothing to order: GE_DIFF and ordered_streams
    are runners of graphs.
    """
    indexers = ("transient", "persistent_logits", "persistent_all")
    every = []
    for instrument, overlap, keys in itertools.product(INSTRUMENTS, (True, False), ("bf16", "fp8")):
        for indexer in indexers:
            every.append(Cell("captured", keys, overlap, instrument, indexer))
            if instrument != "GE_DIFF":
                every.append(Cell("eager", keys, overlap, instrument, indexer))
        every.append(Cell("ordered_streams", keys, overlap, instrument))
    return sorted(every, key=_urgency)


def _urgency(cell: Cell) -> tuple[int, ...]:
    """Return what sorts first the cells in which something may be wrong, or that say why not."""
    is_plain = cell.indexer == "transient" and cell.keys == "bf16"
    away = (not cell.overlap, cell.instrument != "none", cell.runner == "eager")
    is_fixed = cell.indexer == "persistent_all" or cell.runner == "ordered_streams"
    far = sum(away) + (is_fixed and any(away)) + (cell.keys == "fp8" and any(away))
    return (far, not is_plain, cell.runner == "eager", cell.keys == "fp8")


def say(row: Result) -> None:
    """Print a cell's counts in one line."""
    overlap = "overlap" if row["overlap"] else "one stream"
    print(
        f"{row['runner']} {row['keys']} {overlap} {row['instrument']} {row['indexer']}"
        f" corrupt {row['corrupt']}/{row['sessions']} {row['corrupt_by_trial']}"
        f" wrong/M {row['wrong_per_million']} steps {row['steps']} wall {row['wall_s']}",
        flush=True,
    )


def swept(loads: Sequence[Load], oracle: Oracle, budget: Budget) -> list[Result]:
    """Run the leading cells of each load; where the first one is clean, only that."""
    rows: list[Result] = []
    for knobs in loads:
        if budget.is_spent:
            break
        label = f"depth={knobs.depth} top_k={knobs.top_k} words={knobs.words} tf32={knobs.tf32}"
        print(f"-- {label} batch={knobs.max_batch} context={knobs.context_tokens}", flush=True)
        first = Cell()
        row = run_cell(first, knobs, oracle, trials=1)
        found = [row]
        if row["corrupt"]:
            kept = replace(first, indexer="persistent_logits")
            found.append(run_cell(kept, knobs, oracle, trials=1))
        for one in found:
            say(one)
        rows += [{"load": vars(knobs), **one} for one in found]
    return rows


def grid() -> list[Load]:
    """Return the loads of the sweep.

    The longer the contexts, the longer the indexer; the deeper the main branch, the later its
    transients are written. The columns of 48 rows of 5,440 scores just fit the allocator's pool of
    small blocks (1 MiB), in which the attention's query looks for room.
    """
    words = (3570, 3770, 3870, 3470)
    return [Load(2, words=count, context_tokens=5440, sessions=60, rounds=4) for count in words]


def best_load(rows: Sequence[Result]) -> Load | None:
    """Return the load whose counts look most like the story, if any does."""
    groups: dict[str, list[Result]] = {}
    for row in rows:
        groups.setdefault(json.dumps(row["load"]), []).append(row)
    scored = []
    for load, found in groups.items():
        if len(found) < 2:
            continue
        bf16, kept = (row["corrupt"] / row["sessions"] for row in found)
        score = 4 * (0.05 <= bf16 <= 0.3) + 2 * (0 < kept < bf16) + (kept < bf16)
        scored.append((score, -abs(bf16 - 0.15), load))
    best = max(scored, default=None)
    return Load(**json.loads(best[2])) if best else None


def guarded(name: str, result: Result, call: Callable[[], object]) -> None:
    """Keep what a part returns, or say how it failed: the other parts are worth their time."""
    started = time.perf_counter()
    try:
        result[name] = call()
    except Exception:  # noqa: BLE001 - printed, and the run goes on
        traceback.print_exc(file=sys.stdout)
    print(f"[{name}: {time.perf_counter() - started:.1f} s]", flush=True)


def sweep(result: Result, oracle: Oracle, budget: Budget) -> Load | None:
    """Look for knobs, and return the best."""
    if torch.cuda.is_available():
        longest = Load(2, words=4900, context_tokens=5440)
        guarded("kernel_us", result, lambda: story_timeline.kernel_times(longest))
    guarded("sweep", result, lambda: swept(grid(), oracle, budget))
    return best_load(result.get("sweep", []))


def table(result: Result, knobs: Load, trials: int, oracle: Oracle, budget: Budget) -> None:
    """Run every cell, as far as the time lasts, and show how the leading ones come about."""
    result["load"] = vars(knobs)
    rows: list[Result] = []
    result["cells"] = rows
    result["batch_1"] = []
    leading = [Cell(keys=keys) for keys in ("bf16", "fp8")]
    kept = [replace(cell, indexer="persistent_logits") for cell in leading]
    alone = replace(knobs, sessions=1)
    for cell in (*leading, *kept):
        result["batch_1"].append(run_cell(cell, alone, oracle, trials=2))
        say(result["batch_1"][-1])
    for cell in leading:
        name = f"{cell.indexer} {cell.keys} {cell.instrument}"
        guarded(f"races {name}", result, lambda c=cell: story_timeline.races(c, knobs))
        if torch.cuda.is_available():
            guarded(
                f"timeline {name}",
                result,
                lambda c=cell: story_timeline.one_layer(c, knobs, oracle),
            )
    for cell in cells():
        if budget.is_spent:
            print("out of time before", cell, flush=True)
            break
        rows.append(run_cell(cell, knobs, oracle, trials=trials))
        say(rows[-1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one part and write story.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("sweep", "table", "both"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/gpu"))
    parser.add_argument("--budget-s", type=float, default=240)
    parser.add_argument("--sweep-s", type=float, default=90)
    parser.add_argument("--prepared", type=Path, help="what Oracle.prepare kept")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--load", type=json.loads, help="JSON of Load; `both` finds one")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR, stream=sys.stdout)
    result: Result = {"command": sys.argv[1:], "torch": torch.__version__}
    budget = Budget(options.budget_s)
    oracle = Oracle(options.prepared)
    knobs = Load(**options.load) if options.load else None
    try:
        if options.part != "table":
            knobs = sweep(result, oracle, Budget(options.sweep_s))
            print("best:", knobs)
        if options.part != "sweep" and knobs is not None:
            table(result, knobs, options.trials, oracle, budget)
    finally:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "story.json").write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
