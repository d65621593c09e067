"""How many slow streams a client process drives: sessions against CPU, memory and honesty."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator

from fleetctl.serving.load import TrialPlan
from fleetctl.serving.null_server import MODEL, Pace, null_server
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import NoTranscripts
from fleetctl.serving.trial import run_trial
from fleetctl.trial.workload import Limits, ToolcallWorkload

PACES = (1.0, 10.0, 50.0)
SESSIONS = (100, 800)
STREAM_S = 8.0


def measure() -> Iterator[str]:
    """Yield a line per pace and number of streams, with one client process.

    CPU is counted per stream and second, which a busy machine does not change much; the lag of the
    event loop it does.
    """
    yield f"{os.cpu_count()} cores shared with the null server; streams of {STREAM_S:g} s"
    yield "tokens/s  streams  CPU per stream  streams a core  resident  lag p99"
    for pace in PACES:
        with null_server(Pace(round(pace * STREAM_S), pace)) as url:
            for sessions in SESSIONS:
                yield _line(url, pace, sessions)


def _line(url: str, pace: float, sessions: int) -> str:
    limits = Limits(total_s=120, ttft_s=60, stall_s=30)
    workload = ToolcallWorkload(sessions=sessions, rounds=1, context_tokens=0, limits=limits)
    cpu_s = time.process_time()
    result = run_trial(TrialPlan(workload, Target(url, MODEL)), store=NoTranscripts(), processes=1)
    share = (time.process_time() - cpu_s) / (sessions * STREAM_S)
    lag_ms = result.client.loop_lag_p99_ms if result.client else 0.0
    resident_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{pace:8g} {sessions:8d} {1000 * share:12.2f} ms/s {1 / share:12.0f}"
        f" {resident_mib:7.0f} MiB {lag_ms:6.0f} ms"
    )
