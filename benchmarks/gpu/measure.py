"""How times are taken on a GPU, and what the machine itself can do.

A measurement captures its calls into one CUDA graph and times replays with events, so launch gaps
of the host are left out. The calls of a graph walk through input sets that together exceed the L2
cache several times, so each finds its inputs in device memory, as a decode step does.
"""

from __future__ import annotations

import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import triton

Call = Callable[[], object]
COLD_BYTES = 256 * 2**20  # what input sets exceed together; over four times the L2 of an H200
LEAST_CALLS = 8  # in a graph, so that launching it weighs little
COPY_BYTES = 2**32
MATMUL_SIZE = 8192


@dataclass(frozen=True)
class Time:
    """Seconds of one call.

    Attributes:
        median_s: median over replays.
        least_s: the fastest replay.
        most_s: the slowest replay.
    """

    median_s: float
    least_s: float
    most_s: float


def time_calls(calls: Sequence[Call], *, replays: int = 15) -> Time:
    """Return the time of one of `calls`, which are captured together and replayed.

    Raises:
        RuntimeError: a call cannot be captured.
    """
    calls = list(calls) * -(-LEAST_CALLS // len(calls))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for call in calls:
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    times_s = [_between_events_s(graph.replay) / len(calls) for _ in range(replays + 3)][3:]
    return Time(statistics.median(times_s), min(times_s), max(times_s))


def _between_events_s(call: Call) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def kernel_times_s(call: Call, *, calls: int = 20) -> dict[str, float]:
    """Return the mean device seconds of each kernel that one call launches, by name."""
    call()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    rows = [row for row in profile.key_averages() if row.device_time_total > 0]
    return {row.key[:60]: row.device_time_total / calls / 1e6 for row in rows}


def sets_for(call_bytes: int, *, most: int = 256) -> int:
    """Return how many input sets of `call_bytes` each keep the cache cold."""
    return max(1, min(most, -(-COLD_BYTES // call_bytes)))


def copy_bytes_per_s() -> dict[str, float]:
    """Return the rate of a large device-to-device copy in two ways, bytes read plus written.

    The copies run on the stream, not in a graph, whose copy nodes are slower than the same copy
    outside. The larger rate is the ceiling that kernels are held against.
    """
    source = torch.empty(COPY_BYTES // 4, dtype=torch.float32, device="cuda").normal_()
    target = torch.empty_like(source)
    calls = {
        "copy_": lambda: target.copy_(source),
        "elementwise kernel": lambda: torch.mul(source, 1.0, out=target),
    }
    return {name: 2 * COPY_BYTES / _stream_s(call) for name, call in calls.items()}


def _stream_s(call: Call) -> float:
    """Return the median seconds of a call that is much longer than its launch."""
    call()
    return statistics.median(_between_events_s(call) for _ in range(15))


def matmul_flops_per_s() -> dict[str, float]:
    """Return the rate of a large matrix product on random data, for bf16 and e4m3 operands."""
    size = MATMUL_SIZE
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    one = torch.ones((), device="cuda")
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    calls = {
        "bf16": lambda: a @ b,
        "fp8": lambda: torch._scaled_mm(  # noqa: SLF001 - it has no public name
            a8, b8, one, one, out_dtype=torch.bfloat16
        ),
    }
    return {name: 2 * size**3 / time_calls([call]).median_s for name, call in calls.items()}


def facts() -> dict[str, str]:
    """Return what a reader must know to repeat the measurement."""
    properties = torch.cuda.get_device_properties(0)
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        "command": shlex.join(
            ["python3", "-m", sys.modules["__main__"].__spec__.name, *sys.argv[1:]]
        ),
        "gpu": properties.name,
        "multiprocessors": str(properties.multi_processor_count),
        "l2_bytes": str(properties.L2_cache_size),
        "driver": driver.stdout.strip().splitlines()[0],
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
    }
