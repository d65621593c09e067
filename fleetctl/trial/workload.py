"""What a trial does to a service: the two kinds of workload, as values.

`ToolcallWorkload` is the built-in repro: concurrent multi-turn sessions that need tool calls.
`CommandWorkload` is any program of the user's. What a single session says is in `scenario.py`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from fleetctl.errors import InputError
from fleetctl.trial.planted import MAX_SESSIONS, MAX_SLOTS

MAX_ROUNDS = MAX_SLOTS


class CacheMode(enum.StrEnum):
    """Which sessions begin with the same tokens, and so may share a server's prefix cache.

    Attributes:
        SHARED: all sessions have one prefix: system prompt and context are the same.
        UNIQUE: each session starts with a nonce of its own, so nothing is shared.
        MIXED: sessions fall into `cache_groups` groups, one prefix each.
    """

    SHARED = "shared"
    UNIQUE = "unique"
    MIXED = "mixed"


class ThinkKind(enum.StrEnum):
    """How long a simulated user waits between two rounds."""

    NONE = "none"
    CONSTANT = "constant"
    UNIFORM = "uniform"
    LOGNORMAL = "lognormal"


@dataclass(frozen=True)
class ThinkTime:
    """Pause before each round after the first.

    Attributes:
        kind: the distribution; uniform lies between 0 and twice the mean.
        mean_s: its mean in seconds.
        sigma: shape of the lognormal (standard deviation of the logarithm).
    """

    kind: ThinkKind = ThinkKind.NONE
    mean_s: float = 0.0
    sigma: float = 0.5

    def __post_init__(self) -> None:
        _require(self.mean_s >= 0, "think time", f"mean_s is {self.mean_s}", "give mean_s >= 0")
        _require(self.sigma >= 0, "think time", f"sigma is {self.sigma}", "give sigma >= 0")


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters as sent; None leaves a field out, so that the server's default holds.

    Attributes:
        temperature: 0 by default, so that a healthy server has one right answer.
        top_p: nucleus mass.
        top_k: an extension that SGLang, vLLM and llama.cpp know.
        request_seed: send a `seed` per request, derived from the session's seed.
    """

    temperature: float | None = 0.0
    top_p: float | None = None
    top_k: int | None = None
    request_seed: bool = False


@dataclass(frozen=True)
class Limits:
    """When a request is given up; each limit has a flag of its own.

    Attributes:
        connect_s: until the connection stands.
        ttft_s: until the first token of a round.
        stall_s: between two pieces of a stream.
        total_s: for a whole round.
    """

    connect_s: float = 10.0
    ttft_s: float = 120.0
    stall_s: float = 60.0
    total_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("connect_s", "ttft_s", "stall_s", "total_s"):
            value = getattr(self, name)
            _require(value > 0, "limit", f"{name} is {value}", "give a number of seconds above 0")


@dataclass(frozen=True)
class ToolcallWorkload:
    """Closed-loop sessions that must call a tool, with planted values to check against.

    A session makes at most `rounds` requests. All but the last need a tool call; the last
    needs a text that ends the session as `done` (with `rounds = 1` the only round needs a call
    and the session ends as `maxrounds`).

    Attributes:
        sessions: how many, all started behind one barrier and run at once.
        rounds: requests per session, at most `MAX_ROUNDS`.
        context_tokens: size of the filler text in the served model's tokens; tools, instructions
            and history come on top. `scenario.Calibration` turns tokens into words.
        context_spread: 0 to 1; a session's filler is that share shorter or longer, by its seed.
        max_tokens: limit per reply.
        think_time: pause before each later round.
        cache_mode: which sessions share a prefix.
        cache_groups: number of prefixes in mode `mixed`.
        stream: ask for server-sent events; a factor, since some leaks exist only in streams.
        tool_choice: `auto` by default: a constrained server hides corruption.
        sampling: sampling parameters.
        limits: when a request is given up.
    """

    sessions: int = 40
    rounds: int = 3
    context_tokens: int = 300
    context_spread: float = 0.0
    max_tokens: int = 1800
    think_time: ThinkTime = field(default_factory=ThinkTime)
    cache_mode: CacheMode = CacheMode.UNIQUE
    cache_groups: int = 4
    stream: bool = True
    tool_choice: str = "auto"
    sampling: Sampling = field(default_factory=Sampling)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        for name, low, high in (
            ("sessions", 1, MAX_SESSIONS),
            ("rounds", 1, MAX_ROUNDS),
            ("context_tokens", 0, 10_000_000),
            ("context_spread", 0, 1),
            ("max_tokens", 1, 10_000_000),
            ("cache_groups", 1, MAX_SESSIONS),
        ):
            value = getattr(self, name)
            why = f"{name} is {value}; it must lie between {low} and {high}"
            _require(low <= value <= high, "workload", why, f"change {name} in [workload]")

    @property
    def calls_per_session(self) -> int:
        """Tool calls that a healthy session makes."""
        return max(1, self.rounds - 1)


@dataclass(frozen=True)
class CommandWorkload:
    """A program of the user's that exercises the service and prints what it saw.

    It gets FLEETCTL_URL, FLEETCTL_MODEL, FLEETCTL_SEED, FLEETCTL_RUN, FLEETCTL_ARM and
    FLEETCTL_RESULT in its environment, and reports in one of two ways: it writes the documented
    JSON to the path in FLEETCTL_RESULT (or prints it as the last line of stdout), or it prints
    the line `CORRUPTION sessions: x/n = …`.

    Attributes:
        argv: the program and its arguments; no shell is involved.
        deadline_s: after this it is killed, with all its children.
        cwd: directory to run in; None for the current one.
        environ: additional environment variables.
    """

    argv: tuple[str, ...]
    deadline_s: float = 3600.0
    cwd: str | None = None
    environ: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _require(
            bool(self.argv) and bool(self.argv[0]),
            "workload",
            "argv is empty",
            'give argv = ["program", "argument", …] in [workload]',
        )
        _require(
            self.deadline_s > 0, "workload", f"deadline_s is {self.deadline_s}", "give it above 0"
        )


Workload = ToolcallWorkload | CommandWorkload


def _require(holds: bool, what: str, why: str, next_step: str) -> None:  # noqa: FBT001 - a guard reads best with its claim first
    if not holds:
        raise InputError(f"impossible {what}", why=why, next_step=next_step)
