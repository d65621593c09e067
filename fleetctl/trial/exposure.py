"""How much load a trial really put on the service: what must be equal before rates are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fleetctl.trial.events import Ended, Exchange
from fleetctl.trial.reply import Reply


@dataclass(frozen=True)
class RoundStats:
    """One request in numbers; times in seconds since the start barrier.

    Attributes:
        intended_at_s: when it was due.
        sent_at_s: when it was sent.
        finished_at_s: when it was over.
        ttft_s: from when it was due to its first token; None when none came.
        prompt_tokens: as the server counts, or None.
        completion_tokens: as the server counts, or None.
        cached_tokens: prompt tokens from a prefix cache, or None.
        pieces: pieces of the answer that arrived; about one per token in a stream.
        is_answered: the response came whole.
    """

    intended_at_s: float
    sent_at_s: float
    finished_at_s: float
    ttft_s: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    pieces: int
    is_answered: bool


@dataclass(frozen=True)
class Exposure:
    """A trial's load.

    Attributes:
        wall_s: from the barrier to the end of the last request.
        requests: requests sent.
        rounds: requests answered whole.
        concurrency_s: seconds of requests in flight, summed over requests.
        peak_concurrency: most requests in flight at once.
        mean_concurrency: `concurrency_s / wall_s`.
        busy_concurrency: requests in flight on average until half of the sessions have ended:
            unlike the mean over all, a few endless replies at the end don't thin it.
        start_spread_s: between the first and the last session's first request.
        prompt_tokens: sum over requests, as far as reported.
        completion_tokens: the same; where a server reports none, the pieces of its streams.
        cached_tokens: the same; None when never reported.
        longest_context_tokens: most prompt plus completion tokens of one request.
        is_usage_reported: every answered request came with token counts.
        ttft_p50_s: median time from when a request was due to its first token.
        ttft_p99_s: the 99th percentile of it.
    """

    wall_s: float = 0.0
    requests: int = 0
    rounds: int = 0
    concurrency_s: float = 0.0
    peak_concurrency: int = 0
    mean_concurrency: float = 0.0
    busy_concurrency: float = 0.0
    start_spread_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    longest_context_tokens: int = 0
    is_usage_reported: bool = False
    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None


def round_stats(exchange: Exchange, reply: Reply) -> RoundStats:
    """Return the numbers of one exchange."""
    first = exchange.first_token_at_s
    waited_s = exchange.sent_at_s - exchange.intended_at_s
    return RoundStats(
        intended_at_s=exchange.intended_at_s,
        sent_at_s=exchange.sent_at_s,
        finished_at_s=exchange.sent_at_s + exchange.finished_at_s,
        ttft_s=None if first is None else waited_s + first,
        prompt_tokens=reply.usage.prompt_tokens,
        completion_tokens=reply.usage.completion_tokens,
        cached_tokens=reply.usage.cached_tokens,
        pieces=reply.choices,
        is_answered=exchange.ended is Ended.COMPLETE and exchange.status == 200,
    )


def exposure_of(sessions: Sequence[Sequence[RoundStats]]) -> Exposure:
    """Return the load of a trial from the numbers of its sessions' rounds."""
    rounds = [stats for session in sessions for stats in session]
    if not rounds:
        return Exposure()
    wall_s = max(stats.finished_at_s for stats in rounds) - min(s.sent_at_s for s in rounds)
    concurrency_s = sum(stats.finished_at_s - stats.sent_at_s for stats in rounds)
    starts = [session[0].sent_at_s for session in sessions if session]
    cached = [s.cached_tokens for s in rounds if s.cached_tokens is not None]
    ttft = sorted(s.ttft_s for s in rounds if s.ttft_s is not None)
    answered = [stats for stats in rounds if stats.is_answered]
    return Exposure(
        wall_s=wall_s,
        requests=len(rounds),
        rounds=len(answered),
        concurrency_s=concurrency_s,
        peak_concurrency=_peak(rounds),
        mean_concurrency=concurrency_s / wall_s if wall_s else 0.0,
        busy_concurrency=_busy_concurrency(sessions),
        start_spread_s=max(starts) - min(starts),
        prompt_tokens=sum(stats.prompt_tokens or 0 for stats in rounds),
        completion_tokens=sum(_completion_tokens(stats) for stats in rounds),
        cached_tokens=sum(cached) if cached else None,
        longest_context_tokens=max((s.prompt_tokens or 0) + _completion_tokens(s) for s in rounds),
        is_usage_reported=all(stats.prompt_tokens is not None for stats in answered),
        ttft_p50_s=percentile(ttft, 0.5),
        ttft_p99_s=percentile(ttft, 0.99),
    )


def _busy_concurrency(sessions: Sequence[Sequence[RoundStats]]) -> float:
    began = [session for session in sessions if session]
    start_s = min(session[0].sent_at_s for session in began)
    ends = sorted(max(stats.finished_at_s for stats in session) for session in began)
    window_s = ends[(len(ends) - 1) // 2] - start_s
    inside_s = sum(
        max(0.0, min(stats.finished_at_s, start_s + window_s) - stats.sent_at_s)
        for session in began
        for stats in session
    )
    return inside_s / window_s if window_s > 0 else 0.0


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of values in rising order, or None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _completion_tokens(stats: RoundStats) -> int:
    return stats.pieces if stats.completion_tokens is None else stats.completion_tokens


def _peak(rounds: Sequence[RoundStats]) -> int:
    # An end sorts before a start at the same instant: touching requests don't overlap.
    edges = sorted(
        [(stats.sent_at_s, 1) for stats in rounds] + [(stats.finished_at_s, -1) for stats in rounds]
    )
    in_flight = peak = 0
    for _, step in edges:
        in_flight += step
        peak = max(peak, in_flight)
    return peak
