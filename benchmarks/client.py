"""How many streams one client core drives: fleetctl's client against httpx, in one run.

    python benchmarks/client.py [--streams 200] [--seconds 10] [--json]

Both read the same paced streams of the same null server, one after the other, pinned to one core;
the server has another. fleetctl parses, records and classifies what it reads, httpx only reads
lines. On a busy machine run it under `chrt -f 1`. Absolute numbers belong to the machine, the
ratio carries over. Exits 1 when fleetctl's loop lag p99 reaches 100 ms or its pace falls below
90 % of what was offered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass

import httpx

from fleetctl.serving.health import HealthMeter
from fleetctl.serving.load import TrialPlan
from fleetctl.serving.null_server import MODEL, Pace, null_server
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import NoTranscripts
from fleetctl.serving.trial import run_trial
from fleetctl.trial.scenario import Calibration, build_scenario, first_messages, request_body
from fleetctl.trial.workload import ToolcallWorkload

TOKENS_PER_S = 50.0


@dataclass(frozen=True)
class Measured:
    """One client's run.

    Attributes:
        pace: events read over events that the server's pace offered meanwhile.
        cpu_share: of one core.
        cpu_us_per_event: CPU time per event, connecting and bookkeeping included.
    """

    client: str
    streams: int
    events: int
    pace: float
    cpu_share: float
    cpu_us_per_event: float
    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    loop_lag_max_ms: float


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--streams", type=int, default=200)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--json", action="store_true")
    asked = options.parse_args()
    pace = Pace(round(asked.seconds * TOKENS_PER_S), TOKENS_PER_S)
    cores = sorted(os.sched_getaffinity(0))
    with null_server(pace) as url:
        os.sched_setaffinity(0, {cores[0]})  # after the server was started: it keeps them all
        ours = measure_fleetctl(url, asked.streams)
        theirs = asyncio.run(measure_httpx(url, asked.streams, pace))
    show(ours, theirs, as_json=asked.json)
    return 0 if ours.loop_lag_p99_ms < 100 and ours.pace >= 0.9 else 1


def workload(streams: int) -> ToolcallWorkload:
    return ToolcallWorkload(sessions=streams, rounds=1)


def measure_fleetctl(url: str, streams: int) -> Measured:
    plan = TrialPlan(workload(streams), Target(url, MODEL))
    result = run_trial(plan, store=NoTranscripts(), processes=1)
    load, health = result.exposure, result.client
    if health is None or result.corrupted or result.counted != streams:
        raise SystemExit(f"not a clean trial: {result.line()} {result.invalid_because}")
    # a call, a finish reason and a usage chunk follow the filler
    events = load.completion_tokens + 2 * streams
    return Measured(
        "fleetctl",
        streams,
        events,
        events / (load.concurrency_s * TOKENS_PER_S),
        health.cpu_share,
        health.cpu_share * load.wall_s / events * 1e6,
        health.loop_lag_p50_ms,
        health.loop_lag_p99_ms,
        health.loop_lag_max_ms,
    )


async def measure_httpx(url: str, streams: int, pace: Pace) -> Measured:
    """Read the same streams with httpx, as plainly as one can."""
    bodies = [request_of(index, streams) for index in range(streams)]
    loop = asyncio.get_running_loop()
    meter = HealthMeter()
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=120) as client:

        async def read(body: bytes) -> tuple[int, float]:
            began_s, events = loop.time(), 0
            async with client.stream(
                "POST", f"{url}/v1/chat/completions", content=body
            ) as response:
                async for line in response.aiter_lines():
                    events += line.startswith("data: ")
            return events, loop.time() - began_s

        meter.start()
        began_s = loop.time()
        found = await asyncio.gather(*map(read, bodies))
        wall_s = loop.time() - began_s
        health = await meter.stop()
    events = sum(count for count, _ in found)
    in_flight_s = sum(took_s for _, took_s in found)
    return Measured(
        "httpx",
        streams,
        events,
        events / (in_flight_s * pace.tokens_per_s),
        health.cpu_share,
        health.cpu_share * wall_s / events * 1e6,
        health.loop_lag_p50_ms,
        health.loop_lag_p99_ms,
        health.loop_lag_max_ms,
    )


def request_of(index: int, streams: int) -> bytes:
    scenario = build_scenario(
        workload(streams), root_seed=0, run_index=0, session=index, calibration=Calibration()
    )
    return request_body(
        workload(streams), model=MODEL, messages=first_messages(scenario), request_seed=0
    )


def show(ours: Measured, theirs: Measured, *, as_json: bool) -> None:
    lag_ratio = theirs.loop_lag_p99_ms / max(ours.loop_lag_p99_ms, 0.1)
    cpu_ratio = theirs.cpu_us_per_event / ours.cpu_us_per_event
    if as_json:
        rows = [asdict(ours), asdict(theirs)]
        json.dump({"rows": rows, "lag_ratio": lag_ratio, "cpu_ratio": cpu_ratio}, sys.stdout)
        print()
        return
    print(f"{ours.streams} streams of {TOKENS_PER_S:g} tokens/s, one client core")
    print("client    events  pace   CPU   us/event  lag p50   p99     max (ms)")
    for row in (ours, theirs):
        print(
            f"{row.client:<8} {row.events:>7}  {row.pace:4.0%}  {row.cpu_share:4.0%}"
            f"  {row.cpu_us_per_event:8.1f}  {row.loop_lag_p50_ms:7.1f}  {row.loop_lag_p99_ms:6.1f}"
            f"  {row.loop_lag_max_ms:6.1f}"
        )
    print(f"httpx: {cpu_ratio:.1f} times the CPU per event, {lag_ratio:.1f} times the lag p99")


if __name__ == "__main__":
    sys.exit(main())
