"""What this machine can drive: trials against the null server, with more and more streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fleetctl.serving.load import TrialPlan
from fleetctl.serving.null_server import MODEL, Pace, null_server
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import NoTranscripts
from fleetctl.serving.trial import run_trial
from fleetctl.trial.summary import MOST_LAG_P99_MS, TrialResult
from fleetctl.trial.workload import ToolcallWorkload

TOKENS_PER_S = 50.0
STREAM_S = 4.0  # long enough for hundreds of lag samples
LADDER = (25, 50, 100, 200, 400, 800, 1600)
LEAST_PACE = 0.9


@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    Attributes:
        sessions: streams at once.
        processes: client processes.
        pace: pieces per second and stream over those that the server offered.
        result: the trial; clean unless this client is at fault.
    """

    sessions: int
    processes: int
    pace: float
    result: TrialResult

    @property
    def holds(self) -> bool:
        """Whether the client kept up: valid, clean, and no slower than the server."""
        is_clean = self.result.counted == self.sessions and self.result.corrupted == 0
        return self.result.is_valid and is_clean and self.pace >= LEAST_PACE


@dataclass(frozen=True)
class Ceiling:
    """What the self-test found.

    Attributes:
        rungs: every step tried; the last one may be the first that failed.
        sessions: most streams that were driven well; 0 if none.
        tokens_per_s: pace of each stream.
    """

    rungs: tuple[Rung, ...]
    sessions: int
    tokens_per_s: float

    def sentence(self) -> str:
        """Return the finding for people."""
        last = self.rungs[-1]
        end = f"{last.sessions} were too many" if not last.holds else "more were not tried"
        processes = "process" if last.processes == 1 else "processes"
        return (
            f"this machine drives {self.sessions} streams of {self.tokens_per_s:g} tokens/s with "
            f"{last.processes} client {processes} at a loop lag p99 under {MOST_LAG_P99_MS:.0f} ms"
            f"; {end}"
        )


def self_test(
    *,
    processes: int = 1,
    ladder: tuple[int, ...] = LADDER,
    stream_s: float = STREAM_S,
    on_rung: Callable[[Rung], None] = lambda rung: None,
) -> Ceiling:
    """Climb the ladder until the client can't keep up, and return how far it got.

    Client and null server share the machine, as client and service do in the lab: against a
    service elsewhere the ceiling is a little higher.
    """
    rungs: list[Rung] = []
    for rung in _climb(processes, ladder, stream_s):
        rungs.append(rung)
        on_rung(rung)
    best = max((rung.sessions for rung in rungs if rung.holds), default=0)
    return Ceiling(tuple(rungs), best, TOKENS_PER_S)


def _climb(processes: int, ladder: tuple[int, ...], stream_s: float) -> Iterator[Rung]:
    with null_server(Pace(round(TOKENS_PER_S * stream_s), TOKENS_PER_S)) as url:
        for sessions in ladder:
            workload = ToolcallWorkload(sessions=sessions, rounds=1, context_tokens=0)
            plan = TrialPlan(workload, Target(url, MODEL))
            result = run_trial(plan, store=NoTranscripts(), processes=processes)
            rung = Rung(sessions, processes, _pace(result), result)
            yield rung
            if not rung.holds:
                return


def _pace(result: TrialResult) -> float:
    exposure = result.exposure
    offered = exposure.concurrency_s * TOKENS_PER_S
    return exposure.completion_tokens / offered if offered else 0.0
