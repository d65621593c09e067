"""What one session says: instructions, tools, the question, and the right answers.

The form is fixed, so that a server (and the payload's own engine) can be checked against it.
For `rounds = 3` a healthy conversation is:

    system     [desk 5f0c…] You are the clerk of an order desk. … Desk notes: <filler>
    user       Please look up order ZK-4417-Q.
    assistant  -> lookup_order {"order_id": "ZK-4417-Q"}                          round 1
    tool       {"order_id": "ZK-4417-Q", "next_order_id": "MB-2093-T"}
    assistant  -> lookup_order {"order_id": "MB-2093-T"}                          round 2
    tool       {"order_id": "MB-2093-T", "tracking_code": "QX-5512-H"}
    assistant  The tracking code is QX-5512-H.                                    round 3, done

Everything derives from (root seed, run index, session index, purpose) by hash, so adding a
session shifts no other, and both arms of an experiment send the same bytes in round 1.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import Any

from fleetctl.trial.filler import filler_text
from fleetctl.trial.planted import planted_value
from fleetctl.trial.workload import CacheMode, ThinkKind, ThinkTime, ToolcallWorkload

Message = dict[str, Any]

SCENARIO_VERSION = 1  # raise it with any change of what is sent: results stay comparable within one

TOOL = "lookup_order"
ARGUMENT = "order_id"

INSTRUCTIONS = (
    "You are the clerk of an order desk. "
    f"For every order you are asked about, call the tool {TOOL} with its {ARGUMENT}; "
    "never answer from memory. "
    "When a result names a next_order_id, look that order up, too. "
    "When a result names a tracking_code, call no further tool and reply with one sentence "
    "that contains the tracking code."
)


def _function(name: str, description: str) -> dict[str, Any]:
    order_id = {"type": "string", "description": "The order's id, exactly as given."}
    parameters = {
        "type": "object",
        "properties": {ARGUMENT: order_id},
        "required": [ARGUMENT],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = (
    _function(TOOL, "Look up one order by its id."),
    _function("cancel_order", "Cancel one order by its id."),
)


@dataclass(frozen=True)
class Calibration:
    """How many of the served model's tokens one filler word takes.

    The driver measures it once per experiment, from `usage.prompt_tokens` of two short requests
    whose filler differs in length, and both arms use the same value: round-1 requests stay
    byte-identical. Where a server reports no usage, `tokens_per_word` keeps its default and
    `source` says so.

    Attributes:
        tokens_per_word: slope of prompt tokens over filler words.
        source: `usage`, `tokenizer` or `assumed`.
    """

    tokens_per_word: float = 1.3
    source: str = "assumed"

    def words(self, tokens: int) -> int:
        """Return how many filler words make about `tokens` tokens."""
        return round(tokens / self.tokens_per_word)


@dataclass(frozen=True)
class Scenario:
    """One session, fully determined before it starts.

    Attributes:
        session: index of the session in its run.
        values: the planted values: the order ids to look up in turn, then the tracking code.
        system: the system message's text.
        think_times_s: pause before each round; the first is 0.
        request_seeds: the `seed` of each round's request.
    """

    session: int
    values: tuple[str, ...]
    system: str
    think_times_s: tuple[float, ...]
    request_seeds: tuple[int, ...]

    @property
    def order_ids(self) -> tuple[str, ...]:
        """The ids to look up, one a round."""
        return self.values[:-1]

    @property
    def tracking_code(self) -> str:
        """What the final text must contain."""
        return self.values[-1]


def derive_seed(root_seed: int, run_index: int, session: int, purpose: str) -> int:
    """Return 63 bits that depend on all four, and on nothing else."""
    text = f"fleetctl:{root_seed}:{run_index}:{session}:{purpose}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


def build_scenario(
    workload: ToolcallWorkload,
    *,
    root_seed: int,
    run_index: int,
    session: int,
    calibration: Calibration,
) -> Scenario:
    """Return what one session of a run says."""

    def seed(purpose: str) -> int:
        return derive_seed(root_seed, run_index, session, purpose)

    slots = range(workload.calls_per_session + 1)
    return Scenario(
        session=session,
        values=tuple(planted_value(root_seed, run_index, session, slot) for slot in slots),
        system=_system_text(workload, root_seed, run_index, session, calibration),
        think_times_s=_think_times(workload.think_time, workload.rounds, seed("think")),
        request_seeds=tuple(seed(f"request {r}") % 2**31 for r in range(workload.rounds)),
    )


def first_messages(scenario: Scenario) -> list[Message]:
    """Return the conversation before the first reply."""
    return [
        {"role": "system", "content": scenario.system},
        {"role": "user", "content": f"Please look up order {scenario.order_ids[0]}."},
    ]


def tool_result(scenario: Scenario, order_id: object) -> str:
    """Return what the tool answers: the next order, the tracking code, or that it knows nothing."""
    if order_id not in scenario.order_ids:
        return json.dumps({ARGUMENT: order_id, "error": "no such order"})
    following = scenario.order_ids.index(order_id) + 1
    if following < len(scenario.order_ids):
        return json.dumps({ARGUMENT: order_id, "next_order_id": scenario.order_ids[following]})
    return json.dumps({ARGUMENT: order_id, "tracking_code": scenario.tracking_code})


def request_body(
    workload: ToolcallWorkload, *, model: str, messages: list[Message], request_seed: int
) -> bytes:
    """Return the exact bytes of one chat completion request."""
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "tools": list(TOOLS),
        "tool_choice": workload.tool_choice,
        "max_tokens": workload.max_tokens,
        "stream": workload.stream,
    }
    if workload.stream:
        body["stream_options"] = {"include_usage": True}
    sampling = workload.sampling
    for name in ("temperature", "top_p", "top_k"):
        if getattr(sampling, name) is not None:
            body[name] = getattr(sampling, name)
    if sampling.request_seed:
        body["seed"] = request_seed
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _system_text(
    workload: ToolcallWorkload,
    root_seed: int,
    run_index: int,
    session: int,
    calibration: Calibration,
) -> str:
    group = _cache_group(workload, session)
    prefix_seed = derive_seed(root_seed, run_index, group, "prefix")
    # The nonce is the first thing in the prompt: a later difference would still share its prefix.
    nonce = "" if workload.cache_mode is CacheMode.SHARED else f"[desk {prefix_seed:016x}] "
    spread = random.Random(derive_seed(root_seed, run_index, session, "length"))  # noqa: S311 - reproducible, not secret
    share = 1 + workload.context_spread * spread.uniform(-1, 1)
    words = calibration.words(round(workload.context_tokens * share))
    notes = f"\n\nDesk notes: {filler_text(words, prefix_seed)}" if words else ""
    return f"{nonce}{INSTRUCTIONS}{notes}"


def _cache_group(workload: ToolcallWorkload, session: int) -> int:
    match workload.cache_mode:
        case CacheMode.SHARED:
            return 0
        case CacheMode.MIXED:
            return session % workload.cache_groups
        case CacheMode.UNIQUE:
            return session


def _think_times(think: ThinkTime, rounds: int, seed: int) -> tuple[float, ...]:
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    return (0.0, *(_think_time(think, draw) for _ in range(rounds - 1)))


def _think_time(think: ThinkTime, draw: random.Random) -> float:
    match think.kind:
        case ThinkKind.NONE:
            return 0.0
        case ThinkKind.CONSTANT:
            return think.mean_s
        case ThinkKind.UNIFORM:
            return draw.uniform(0, 2 * think.mean_s)
        case ThinkKind.LOGNORMAL:
            # exp(sigma²/2) is the mean of a lognormal with median 1
            return think.mean_s * draw.lognormvariate(-(think.sigma**2) / 2, think.sigma)
