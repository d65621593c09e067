"""Measure a decode step and what each instrument costs: `python -m benchmarks.gpu.decode_step`.

Writes decode_step.json and decode_step.md into `--out` (docs/results/gpu by default). A step is
what the engine does with a batch: copy it in, run or replay the model, read the tokens back, and
whatever an instrument adds before and after. Times are wall-clock: that is what a token waits for.
All setups stand side by side and take turns, so that a drift of the machine falls on all of them.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import torch

from benchmarks.gpu import measure, table
from payload.cache.layout import PAGE_TOKENS
from payload.device.contract import Device
from payload.device.cuda import CudaDevice
from payload.engine.assemble import Assembly, Slots, assemble
from payload.engine.config import EngineConfig, ModelConfig
from payload.flags import Flags
from payload.indexer.contract import KeptBuffers
from payload.runner.contract import Batch, Row
from payload.variant import load

LOG = logging.getLogger("benchmarks.gpu.decode_step")


@dataclass(frozen=True)
class Setup:
    """One configuration of the engine.

    Attributes:
        name: what the table calls it.
        indexer: variant name, as are `runner` and `cache`.
        flags: the process's flags.
        overlap: whether the indexer has a stream of its own.
    """

    name: str
    indexer: str = "transient"
    runner: str = "captured"
    cache: str = "bf16"
    flags: Flags = field(default_factory=Flags)
    overlap: bool = True


SETUPS = (
    Setup("eager", runner="eager"),
    Setup("captured"),
    Setup("captured, one stream", overlap=False),
    Setup("captured, fp8 keys", cache="fp8"),
    Setup("GE_DIFF installed, off", runner="differential", flags=Flags(ge_diff=False)),
    Setup("GE_DIFF on", runner="differential"),
    Setup("canary installed, off", cache="guarded", flags=Flags(idxk_canary=False)),
    Setup("canary on", cache="guarded"),
    Setup("persistent logits", indexer="persistent_logits"),
    Setup("persistent all", indexer="persistent_all"),
    Setup("indexer outside the graph", indexer="eager"),
    Setup("ordered streams", runner="ordered_streams"),
)


@dataclass(frozen=True)
class Sizes:
    """What is measured.

    Attributes:
        config: the engine's sizes.
        context: tokens of every row's context.
        batches: batch sizes, each a bucket.
        rounds: how many steps a median is taken over.
    """

    config: EngineConfig
    context: int
    batches: Sequence[int] = (1, 8, 32)
    rounds: int = 60


AS_SERVED = Sizes(EngineConfig(max_batch=32, cache_pages=2100), context=4000)
AS_IN_PRODUCTION = Sizes(
    EngineConfig(
        model=ModelConfig(heads=64, top_k=512),
        max_batch=32,
        context_tokens=32768,
        cache_pages=16500,
    ),
    context=32000,
)
WARM_UPS = 5


def batch_of(rows: int, sizes: Sizes) -> Batch:
    """Return a batch whose rows have long contexts in pages of their own."""
    per_row = sizes.config.pages_per_row
    pages = 1 + torch.arange(rows * per_row, dtype=torch.int32).view(rows, per_row)
    position = sizes.context - 1
    last_page = pages[:, position // PAGE_TOKENS].tolist()
    return Batch(
        tuple(
            Row(
                token=1,
                position=position,
                cursor=position // 2,
                end=position - 1,
                slot=page * PAGE_TOKENS + position % PAGE_TOKENS,
                length=sizes.context,
            )
            for page in last_page
        ),
        pages,
    )


def step_s(assembly: Assembly, batch: Batch) -> float:
    """Do with a batch what the engine does, and return the seconds it took."""
    start_s = time.perf_counter()
    assembly.cache.expect([0, *(row.slot // PAGE_TOKENS for row in batch.rows)])
    assembly.runner.step(batch)
    assembly.cache.verify()
    return time.perf_counter() - start_s


@dataclass(frozen=True)
class Standing:
    """An engine that is ready, and the indexer it was built with."""

    setup: Setup
    assembly: Assembly
    indexer: object


def standing(setup: Setup, config: EngineConfig, device: Device) -> Standing:
    """Assemble and capture a setup."""
    built: list[object] = []
    indexer = load("indexer", f"payload.indexer.{setup.indexer}")

    def build(*parts: object) -> object:
        built.append(indexer.build(*parts))
        return built[-1]

    slots = Slots(
        replace(indexer, build=build),
        load("runner", f"payload.runner.{setup.runner}"),
        load("cache", f"payload.cache.{setup.cache}"),
    )
    return Standing(setup, assemble(config, slots, setup.flags, LOG, device=device), built[0])


def kept_bytes(indexer: object) -> int:
    """Return what a variant's persistent buffers cost, all buckets together."""
    kept = getattr(indexer, "kept", None)
    return kept.size_bytes if isinstance(kept, KeptBuffers) else 0


def taking_turns(engines: Sequence[Standing], batch: Batch, rounds: int) -> list[list[float]]:
    """Return each engine's step times, from rounds in which each steps once.

    The order is drawn anew for each round: who steps after a slow setup finds cold caches.
    """
    draw = Random(0)
    times_s: list[list[float]] = [[] for _ in engines]
    for _ in range(WARM_UPS + rounds):
        for index in draw.sample(range(len(engines)), len(engines)):
            times_s[index].append(step_s(engines[index].assembly, batch))
    return [times[WARM_UPS:] for times in times_s]


def step_rows(engines: Sequence[Standing], sizes: Sizes) -> list[dict[str, object]]:
    """Return every setup's times at every batch size, and their ratio to the captured step's.

    The ratio is the median of the ratios within a round.
    """
    plain = next(i for i, engine in enumerate(engines) if engine.setup.name == "captured")
    rows: list[dict[str, object]] = []
    for size in sizes.batches:
        times_s = taking_turns(engines, batch_of(size, sizes), sizes.rounds)
        for engine, times in zip(engines, times_s, strict=True):
            ratios = [own / other for own, other in zip(times, times_s[plain], strict=True)]
            rows.append(
                {"batch": size, "setup": engine.setup.name, "median_s": statistics.median(times)}
                | {"least_s": min(times), "over_captured": statistics.median(ratios)}
                | {"kept_bytes": kept_bytes(engine.indexer)}
            )
    return rows


def kept_per_bucket(config: EngineConfig) -> list[dict[str, object]]:
    """Return the bytes of the persistent buffers of each bucket, as the contract sizes them."""
    rows = []
    for bucket in config.buckets:
        logits = bucket * config.context_tokens * 4
        chosen = bucket * config.model.top_k * 4
        rows.append(
            {"bucket": bucket, "persistent_logits": logits}
            | {"persistent_all": logits + 2 * chosen}
        )
    return rows


COLUMNS = ("batch", "setup", "median_s", "least_s", "over_captured", "kept_bytes")


def section(part: dict[str, object]) -> str:
    """Return one configuration's tables."""
    buckets = table.rows_table(part["buckets"], ("bucket", "persistent_logits", "persistent_all"))
    return (
        f"## {part['name']}\n\n`{part['config']}`\n\n{table.rows_table(part['steps'], COLUMNS)}"
        f"\n\nPersistent buffers, bytes of each bucket:\n\n{buckets}\n"
    )


def markdown(result: dict[str, object]) -> str:
    """Return the page."""
    facts = "\n".join(f"- {name}: {value}" for name, value in result["facts"].items())
    parts = "\n".join(section(part) for part in result["parts"])
    return f"# The decode step on a GPU\n\n{facts}\n\n{parts}"


def measured(name: str, sizes: Sizes) -> dict[str, object]:
    """Return every number of one configuration."""
    devices = [CudaDevice(overlap=setup.overlap) for setup in SETUPS]
    engines = [
        standing(setup, sizes.config, device) for setup, device in zip(SETUPS, devices, strict=True)
    ]
    rows = step_rows(engines, sizes)
    for device in devices:
        device.close()
    return {
        "name": name,
        "config": str(sizes.config),
        "steps": rows,
        "buckets": kept_per_bucket(sizes.config),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write both files, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/gpu"))
    chosen = parser.parse_args(arguments)
    parts = [
        measured("As served by the lab", AS_SERVED),
        measured("At production's shapes", AS_IN_PRODUCTION),
    ]
    result = {"facts": measure.facts(), "parts": parts}
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "decode_step.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (chosen.out / "decode_step.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
