"""What both streams do and when: the kernels' own times, and the trace of a replayed step."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import DeviceType

from benchmarks.gpu import measure
from benchmarks.gpu.story_cells import (
    Cell,
    Load,
    Oracle,
    StoryTrial,
    clean_up,
    device_for,
    stand_up,
)
from benchmarks.gpu.story_trace import TracingDevice, shared
from payload.cache import layout
from payload.cache.layout import PAGE_TOKENS, KeyFormat
from payload.device.cuda import CudaDevice
from payload.engine import kernels
from payload.engine.index_kernels import index_parts
from payload.indexer.contract import to_slots

STEPS_TRACED = 3
LAYER_KERNELS = 30  # from the scores on, until both streams have joined


def kernel_times(knobs: Load) -> dict[str, float]:
    """Return the microseconds of each part of a layer's two branches, alone on the GPU."""
    device = CudaDevice(overlap=True)
    parts = index_parts(device, Cell().flags)
    config = knobs.config("cuda")
    rows, pages = knobs.sessions, min(knobs.words + 300, knobs.context_tokens) // PAGE_TOKENS
    shape = config.model
    table = 1 + torch.arange(rows * pages, dtype=torch.int32, device="cuda").view(rows, pages)
    length = torch.full((rows,), pages * PAGE_TOKENS, dtype=torch.int32, device="cuda")
    logits = torch.randn((rows, knobs.context_tokens), device="cuda")
    columns = torch.zeros((rows, shape.top_k), dtype=torch.int32, device="cuda")
    weights = torch.rand((rows, shape.heads), device="cuda")
    x, square = (torch.randn((n, shape.width), device="cuda") for n in (rows, shape.width))
    calls: dict[str, measure.Call] = {}
    for name, key_format, dtype in (
        ("score bf16", KeyFormat.BF16, torch.bfloat16),
        ("score fp8, queries bf16", KeyFormat.FP8, torch.bfloat16),
        ("score fp8, queries fp8", KeyFormat.FP8, torch.float8_e4m3fn),
    ):
        pool = layout.allocate(rows * pages + 1, shape.code_dim, key_format, device="cuda")
        q = torch.randn((rows, shape.heads, shape.code_dim), device="cuda").to(dtype)
        calls[name] = lambda q=q, pool=pool: parts.score(  # type: ignore[misc]
            q, weights, pool, table, length, out=logits
        )
    calls["select"] = lambda: parts.select(logits, length, out=columns)
    calls["to_slots"] = lambda: to_slots(columns, table, out=torch.empty_like(columns))
    calls["dense"] = lambda: kernels.dense(x, square, out=torch.empty_like(x))
    times = {}
    for tf32 in (True, False):
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        chosen = calls if tf32 else {"dense": calls["dense"]}
        for name, call in chosen.items():
            label = f"{name} {'tf32' if tf32 else 'fp32'}" if name == "dense" else name
            times[label] = round(measure.time_calls([call]).median_s * 1e6, 2)
    return times


def races(cell: Cell, knobs: Load) -> dict[str, list[dict[str, Any]]]:
    """Return, by bucket, which unordered accesses of the captured graphs share bytes."""
    clean_up()
    tracing = TracingDevice(device_for(cell, knobs))
    config = stand_up(cell, knobs, tracing).config
    captured = tracing.graphs[-len(config.buckets) :]
    by_bucket = zip(reversed(config.buckets), captured, strict=True)
    return {str(bucket): [vars(race) for race in shared(forks)] for bucket, forks in by_bucket}


def replayed_kernels(cell: Cell, knobs: Load, oracle: Oracle) -> list[dict[str, Any]]:
    """Return the kernels of a replayed step in order of their starts, as CUPTI saw them."""
    clean_up()
    device = device_for(cell, knobs)
    assembly = stand_up(cell, knobs, device)
    assembly.engine.tokenizer = oracle.tokenizer
    trial = StoryTrial(assembly, oracle, knobs, 0)
    for session in trial.sessions:
        trial._ask(session)  # noqa: SLF001 - a trial that is stopped after some steps
    for _ in range(5):
        assembly.engine.step()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(STEPS_TRACED):
            assembly.engine.step()
        device.synchronize()
    raw = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    seen = [event for event in raw if event.device_type() == DeviceType.CUDA]
    seen.sort(key=lambda event: event.start_ns())
    first = seen[0].start_ns()
    return [
        {
            "name": event.name()[:70],
            "stream": event.device_resource_id(),
            "start_us": (event.start_ns() - first) / 1e3,
            "us": event.duration_ns() / 1e3,
        }
        for event in seen
    ]


def one_layer(cell: Cell, knobs: Load, oracle: Oracle) -> list[dict[str, Any]]:
    """Return the kernels of one layer of the last step; time 0 is the start of its scoring."""
    events = replayed_kernels(cell, knobs, oracle)
    starts = [i for i, event in enumerate(events) if "_logits_kernel" in event["name"]]
    first = starts[-3]
    zero = events[first]["start_us"]
    layer = events[first - 3 : first + LAYER_KERNELS]
    return [{**event, "start_us": round(event["start_us"] - zero, 2)} for event in layer]


def tell(layer: list[dict[str, Any]]) -> None:
    """Print a layer's kernels, one a line."""
    for event in layer:
        start_us, end_us = event["start_us"], event["start_us"] + event["us"]
        print(f"   {event['stream']:>3} {start_us:7.1f} {end_us:7.1f} {event['name'][:48]}")
