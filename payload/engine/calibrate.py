"""How deep the main stream's dense layers must be to take about as long as the indexer beside them.

Production balances the two branches by hand, so that neither stream waits. Here the machine
decides: both branches are timed at start-up, and the depth follows from it.
"""

from __future__ import annotations

import logging
import time

import torch

from payload.cache.layout import PAGE_TOKENS
from payload.device.contract import Body, Device
from payload.engine import kernels
from payload.engine.config import EngineConfig
from payload.indexer.contract import IndexerParts

TYPICAL_ROWS = 40
DEPTHS = (4, 64)
REPEATS = 9
LAYERS_TIMED = 16  # about as long as the indexer, so that interruptions hit both alike


def balanced_depth(
    config: EngineConfig, index: IndexerParts, device: Device, log: logging.Logger
) -> int:
    """Return the number of dense layers, and log the timing it comes from."""
    indexer_s = _shortest_s(_indexer(config, index, device), device)
    dense_s = _shortest_s(_dense_layers(config, device), device) / LAYERS_TIMED
    depth = min(max(round(indexer_s / dense_s), DEPTHS[0]), DEPTHS[1])
    log.info(
        "branches: indexer %.3f ms, dense layer %.4f ms at %d rows of %d tokens -> depth %d",
        indexer_s * 1e3,
        dense_s * 1e3,
        TYPICAL_ROWS,
        config.typical_tokens,
        depth,
    )
    return depth


def _shortest_s(body: Body, device: Device) -> float:
    """Return the shortest of some replays: what the work takes when nobody interrupts it.

    A CPU is shared with others, so there the process's own time counts.
    """
    now_s = time.process_time if device.torch_device.type == "cpu" else time.perf_counter
    body()  # warm up
    graph = device.capture(body)
    times = []
    for _ in range(REPEATS):
        device.synchronize()
        started = now_s()
        graph.replay()
        device.synchronize()
        times.append(now_s() - started)
    return min(times)


def _indexer(config: EngineConfig, index: IndexerParts, device: Device) -> Body:
    where, shape = device.torch_device, config.model
    tokens = config.typical_tokens
    rows, pages = min(TYPICAL_ROWS, config.max_batch), -(-tokens // PAGE_TOKENS)
    q = torch.ones((rows, shape.heads, shape.code_dim), dtype=torch.bfloat16, device=where)
    weights = torch.ones((rows, shape.heads), device=where)
    pool = torch.ones((rows * pages, PAGE_TOKENS, shape.code_dim), device=where).bfloat16()
    table = torch.arange(rows * pages, dtype=torch.int32, device=where).view(rows, pages)
    lengths = torch.full((rows,), tokens, dtype=torch.int32, device=where)
    logits = torch.empty((rows, config.context_tokens), device=where)
    columns = torch.empty((rows, shape.top_k), dtype=torch.int32, device=where)

    def body() -> None:
        device.launch(index.score, q, weights, pool, table, lengths, out=logits)
        device.launch(index.select, logits, lengths, out=columns)

    return body


def _dense_layers(config: EngineConfig, device: Device) -> Body:
    where, width = device.torch_device, config.model.width
    x = torch.ones((min(TYPICAL_ROWS, config.max_batch), width), device=where)
    weight = torch.eye(width, device=where)
    out = torch.empty_like(x)

    def body() -> None:
        for _ in range(LAYERS_TIMED):
            device.launch(kernels.dense, x, weight, out=out)

    return body
