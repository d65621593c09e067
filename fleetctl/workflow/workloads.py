"""What the spec says of a workload -> the values that trials are made of."""

from __future__ import annotations

import hashlib
import json

from fleetctl.serving.loads import ServerLoad
from fleetctl.spec.experiment import CommandSpec, ToolcallSpec, Workload
from fleetctl.trial.exposure import Exposure
from fleetctl.trial.workload import (
    CacheMode,
    CommandWorkload,
    Limits,
    Sampling,
    ThinkKind,
    ThinkTime,
    ToolcallWorkload,
)


def toolcall_of(spec: ToolcallSpec) -> ToolcallWorkload:
    """Return the workload of a `toolcall` table."""
    kind = ThinkKind(spec.think_kind) if spec.think_time else ThinkKind.NONE
    return ToolcallWorkload(
        sessions=spec.sessions,
        rounds=spec.rounds,
        context_tokens=spec.context_tokens,
        context_spread=spec.context_spread,
        max_tokens=spec.max_tokens,
        think_time=ThinkTime(kind, spec.think_time),
        cache_mode=CacheMode(spec.cache_mode),
        cache_groups=spec.cache_groups,
        stream=spec.stream,
        tool_choice=spec.tool_choice,
        sampling=Sampling(temperature=spec.temperature, top_p=spec.top_p),
        limits=Limits(
            ttft_s=spec.first_token_limit, stall_s=spec.stall_limit, total_s=spec.total_limit
        ),
    )


def command_of(spec: CommandSpec) -> CommandWorkload:
    """Return the workload of a `command` table."""
    return CommandWorkload(argv=spec.argv, deadline_s=spec.deadline)


def digest_of(spec: Workload) -> str:
    """Return the digest by which equal workloads are recognised, 64 hex digits."""
    text = json.dumps(spec.model_dump(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def missed_triggers(spec: Workload, exposure: Exposure, load: ServerLoad) -> tuple[str, ...]:
    """Return what the fault needs, says the spec, and this load never reached."""
    if not isinstance(spec, ToolcallSpec):
        return ()
    missed = []
    batch = load.largest_batch(exposure.peak_concurrency)
    if batch < spec.min_batch:
        missed.append(f"the largest batch was {batch}, the fault needs {spec.min_batch}")
    longest = exposure.longest_context_tokens
    if longest < spec.min_context_tokens:
        missed.append(
            f"the longest context was {longest} tokens, the fault needs {spec.min_context_tokens}"
        )
    return tuple(missed)
