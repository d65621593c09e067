"""Put an engine together from variants, flags and sizes."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

import torch

from payload.cache.contract import Cache, CacheParts
from payload.device.contract import Device
from payload.device.cpu import CpuDevice
from payload.device.cuda import CudaDevice
from payload.engine.calibrate import balanced_depth
from payload.engine.config import EngineConfig
from payload.engine.engine import Engine
from payload.engine.index_kernels import index_parts
from payload.engine.memory import check_memory, free_memory_bytes
from payload.engine.model import GlassBox
from payload.engine.tokenizer import Tokenizer, standard_tokenizer
from payload.engine.weights import construct
from payload.flags import Flags
from payload.runner.contract import Runner, RunnerParts, StepInputs
from payload.variant import Loaded


@dataclass(frozen=True)
class Slots:
    """The three modules an engine is made of."""

    indexer: Loaded
    runner: Loaded
    cache: Loaded

    def all(self) -> tuple[Loaded, ...]:
        """Return the three, in the order of the command line."""
        return (self.indexer, self.runner, self.cache)


@dataclass(frozen=True)
class Assembly:
    """A ready engine and what it was made of."""

    engine: Engine
    device: Device
    cache: Cache
    runner: Runner
    config: EngineConfig
    flags: Flags
    slots: Slots


def choose_device(flags: Flags) -> Device:
    """Return the GPU if there is one, else the CPU that stands in for one.

    Overlap is on unless SGLANG_OPT_USE_MULTI_STREAM_OVERLAP says no, as in production.
    """
    overlap = flags.overlap is not False
    if torch.cuda.is_available():
        return CudaDevice(overlap=overlap)
    return CpuDevice(overlap=overlap)


def assemble(
    config: EngineConfig, slots: Slots, flags: Flags, log: logging.Logger, *, device: Device
) -> Assembly:
    """Build weights, pools and runner, and capture; every stage is logged with its numbers.

    Raises:
        ImportError: a module that builds no variant of its family.
        ValueError: a flag or a size that cannot be, or for which there is no memory.
    """
    check_memory(config, free_memory_bytes(device.torch_device))
    index = index_parts(device, flags)
    tokenizer = standard_tokenizer()
    if config.model.depth == 0:
        depth = balanced_depth(config, index, device, log)
        config = replace(config, model=replace(config.model, depth=depth))
    started = time.perf_counter()
    where = device.torch_device
    positions = config.context_tokens
    weights = construct(config.model, vocabulary=tokenizer.size, positions=positions, device=where)
    log.info("weights: %.1f MB in %.2f s", weights.size_bytes / 1e6, time.perf_counter() - started)
    cache = slots.cache.make(_cache_parts(config, flags, where))
    log.info(
        "pools: %d pages, %.1f MB, index_k=%s",
        config.cache_pages,
        cache.pools.size_bytes / 1e6,
        cache.key_format.value,
    )
    model = GlassBox(config, weights, cache.pools, slots.indexer.make(index))
    inputs = StepInputs.allocate(config.max_batch, config.pages_per_row, where)
    parts = RunnerParts(device, model.step, inputs, config.buckets, index, flags, log)
    runner = slots.runner.make(parts)
    _prepare(runner, log)
    engine = _engine(config, tokenizer, model, cache, runner, log)
    return Assembly(engine, device, cache, runner, config, flags, slots)


def _cache_parts(config: EngineConfig, flags: Flags, where: torch.device) -> CacheParts:
    dim = config.model.code_dim
    return CacheParts(config.model.layers, config.cache_pages, dim, 2 * dim, flags, where)


def _prepare(runner: Runner, log: logging.Logger) -> None:
    started = time.perf_counter()
    runner.prepare()
    log.info("graphs: %d in %.2f s", len(runner.buckets), time.perf_counter() - started)


def _engine(
    config: EngineConfig,
    tokenizer: Tokenizer,
    model: GlassBox,
    cache: Cache,
    runner: Runner,
    log: logging.Logger,
) -> Engine:
    return Engine(config, tokenizer=tokenizer, model=model, cache=cache, runner=runner, log=log)
