"""What an experiment says: patches, flags, control, observers, workload, trials, verdict."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    field_validator,
    model_validator,
)

from fleetctl.spec.another_day import History
from fleetctl.spec.flags import Flags, checked_flag_name, checked_flags
from fleetctl.spec.limits import MOST_SEED, MOST_SESSIONS, MOST_TOKENS
from fleetctl.spec.metric import Metric
from fleetctl.spec.quantities import (
    Duration,
    Lease,
    Limit,
    Line,
    Said,
    Share,
    SystemText,
    not_blank,
    open_share,
)
from fleetctl.spec.ready import Ready
from fleetctl.spec.value import Value

Verdict = Literal["eliminated", "reduced", "worse", "no_effect", "inconclusive", "invalid"]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class Patch(Value):
    """One change of the serving tree.

    Attributes:
        source: a file, a unified diff (`.diff`, `.patch`) or a directory, relative to the
            repository the experiment lies in.
        module: where the file must be imported from, in the service's own interpreter.
        path: where it goes, relative to the host's `tree`; exactly one of `module` and `path`.
        base_sha256: refuse if the host's file is not the one the patch was made for.
        marker: a log line that each serving process must print once after the restart.
        layout: the patch changes the layout of cached memory (dtype, pages): all roles or none.
    """

    source: Said
    module: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")] | None = (
        None
    )
    path: SystemText | None = None
    base_sha256: Sha256 | None = None
    marker: Line | None = None
    layout: bool = False

    @model_validator(mode="after")
    def _one_target(self) -> Patch:
        if (self.module is None) == (self.path is None):
            raise ValueError("a patch needs exactly one of `module` and `path`")
        if self.path is not None and (self.path.startswith("/") or ".." in self.path.split("/")):
            raise ValueError("`path` is relative to the host's `tree` and stays inside it")
        if self.path is not None and self.kind == "file" and _names_no_file(self.path):
            raise ValueError("`path` has to name the file that `source` replaces")
        return self

    @property
    def kind(self) -> Literal["file", "diff", "tree"]:
        """How `source` is applied; a directory is recognised by its trailing slash."""
        if self.source.endswith("/"):
            return "tree"
        return "diff" if self.source.endswith((".diff", ".patch")) else "file"

    @property
    def target(self) -> str:
        """Where it goes, as the spec says it."""
        return self.module or self.path or ""


def checked_patches(patches: tuple[Patch, ...]) -> tuple[Patch, ...]:
    """Return the patches of an arm, or raise ValueError where two bring one and the same file."""
    files = [p.module or str(PurePosixPath(p.target)) for p in patches if p.kind == "file"]
    twice = next((name for name in files if files.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"two patches go to `{twice}`, and one of them would be lost")
    return patches


def _names_no_file(path: str) -> bool:
    return path.endswith("/") or not PurePosixPath(path).name.strip()


class Control(Value):
    """The other arm; by default the host as found.

    Attributes:
        spec: another experiment whose treatment is this one's control, relative to this file.
        history: counts of another day; the verdict is labelled for it.
        patch: patches of the control.
        env: flags of the control: a value, or false to unset.
    """

    spec: SystemText | None = None
    history: History | None = None
    patch: tuple[Patch, ...] = ()
    env: Flags = Field(default_factory=dict)

    _flags = field_validator("env")(checked_flags)
    _once = field_validator("patch")(checked_patches)

    @model_validator(mode="after")
    def _one_way(self) -> Control:
        ways = [self.spec is not None, self.history is not None, bool(self.patch or self.env)]
        if sum(ways) > 1:
            raise ValueError("a control is one of `spec`, `history`, or `patch` and `env`")
        return self


class Observer(Value):
    """Something that looks but may perturb: it counts as a factor.

    Attributes:
        flag: the flag that switches it.
        off: the flag's value that switches it off.
        patch: or the source of the patch that brings it.
    """

    flag: Annotated[str, AfterValidator(checked_flag_name)] | None = None
    off: SystemText = "0"
    patch: Said | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> Observer:
        if (self.flag is None) == (self.patch is None):
            raise ValueError("an observer is exactly one of `flag` and `patch`")
        return self

    @property
    def name(self) -> str:
        """The flag or the patch source."""
        return self.flag or self.patch or ""


class ToolcallSpec(Value):
    """Concurrent multi-turn tool-calling sessions against the OpenAI API.

    Attributes:
        kind: `toolcall`.
        sessions: how many run at once, from a common start.
        rounds: tool calls per session.
        context_tokens: filler before the first request, in the served model's tokens.
        max_tokens: limit of each reply.
        context_spread: share by which a session's filler is shorter or longer, by its seed.
        cache_mode: which sessions share a prefix: `shared` all, `unique` none, `mixed` groups.
        cache_groups: number of prefixes in mode `mixed`.
        stream: ask for server-sent events.
        tool_choice: `auto` by default: a constrained server hides corruption.
        temperature: of sampling; 0 has one right answer.
        top_p: nucleus mass; left out, the server's default holds.
        think_time: mean pause of a session between rounds.
        think_kind: how the pauses are distributed.
        first_token_limit: longest wait for the first token.
        stall_limit: longest pause inside a reply.
        total_limit: longest reply.
        min_batch: the fault needs this batch size; a trial that never reached it is not clean
            but not exercised.
        min_context_tokens: the fault needs this context length, likewise.
    """

    kind: Literal["toolcall"]
    sessions: int = Field(default=40, gt=0, le=100_000)
    rounds: int = Field(default=3, gt=0, le=100)
    context_tokens: int = Field(default=300, ge=0, le=MOST_TOKENS)
    max_tokens: int = Field(default=1800, gt=0, le=MOST_TOKENS)
    context_spread: float = Field(default=0.0, ge=0, le=1)
    cache_mode: Literal["shared", "unique", "mixed"] = "unique"
    cache_groups: int = Field(default=4, gt=0, le=MOST_SESSIONS)
    stream: bool = True
    tool_choice: Literal["auto", "required", "none"] = "auto"
    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1)
    think_time: Duration = 0.0
    think_kind: Literal["constant", "uniform", "lognormal"] = "constant"
    first_token_limit: Limit = 60.0
    stall_limit: Limit = 60.0
    total_limit: Limit = 600.0
    min_batch: int = Field(default=0, ge=0)
    min_context_tokens: int = Field(default=0, ge=0, le=MOST_TOKENS)


class CommandSpec(Value):
    """Any program that prints the documented JSON or the people's line.

    Attributes:
        kind: `command`.
        argv: program and arguments; `{url}`, `{model}` and `{seed}` are filled in.
        sessions: how many sessions it runs; a million at most.
        deadline: after which it is ended.
    """

    kind: Literal["command"]
    argv: tuple[SystemText, ...] = Field(min_length=1)
    sessions: int = Field(default=40, gt=0, le=MOST_SESSIONS)
    deadline: Limit = 1800.0

    @field_validator("argv")
    @classmethod
    def _names_a_program(cls, argv: tuple[str, ...]) -> tuple[str, ...]:
        not_blank(argv[0])
        return argv


def checked_workload(workload: ToolcallSpec | CommandSpec) -> ToolcallSpec | CommandSpec:
    """Return the workload, or raise ValueError for a trigger that its load can't reach."""
    if isinstance(workload, ToolcallSpec) and workload.min_batch > workload.sessions:
        raise ValueError(
            f"`min_batch` is {workload.min_batch}, and {workload.sessions} sessions never make "
            "such a batch: every trial would be not exercised"
        )
    return workload


Workload = Annotated[ToolcallSpec | CommandSpec, Field(discriminator="kind")]


class Trials(Value):
    """How often each arm is measured and in which order.

    Attributes:
        runs: trials per arm.
        order: `interleaved` cancels a linear drift; `randomised` draws each block of two and two,
            which the e-value of undeclared looks needs; `blocks` (AAABBB) has to be forced.
        stop: `fixed` runs them all; `sequential` ends at the first of the `looks` that decides,
            and draws its order.
        looks: numbers of runs per arm at which the result may be looked at.
        seed: of the order and of the workload; recorded with the run.
        boot_per_run: restart the service before every trial, also when nothing differs.
    """

    runs: int = Field(default=3, gt=0, le=1000)
    order: Literal["interleaved", "randomised", "blocks"] = "interleaved"
    stop: Literal["fixed", "sequential"] = "fixed"
    looks: tuple[int, ...] = ()
    seed: int = Field(default=0, ge=0, le=MOST_SEED)
    boot_per_run: bool = True

    @model_validator(mode="before")
    @classmethod
    def _sequential_is_randomised(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("stop") == "sequential":
            return {"order": "randomised", **value}
        return value

    @model_validator(mode="after")
    def _looks_fit(self) -> Trials:
        if self.stop == "sequential" and self.order != "randomised":
            raise ValueError(
                '`stop = "sequential"` needs order = "randomised": an early look trusts the draw'
            )
        if self.stop == "sequential" and not self.looks:
            raise ValueError('`stop = "sequential"` needs `looks`, such as looks = [4, 6, 8]')
        if list(self.looks) != sorted(set(self.looks)) or any(
            n > self.runs or n < 1 for n in self.looks
        ):
            raise ValueError("`looks` must rise and end at `runs` or before")
        return self


class VerdictSpec(Value):
    """What is judged, against which bounds.

    Attributes:
        metric: what counts as bad. `corruption`: sessions of a corrupt class. `failures`: all that
            did not end as asked (`done`, `maxrounds`): the corrupt ones, and `timeout`, `error`,
            `no_tool`, `truncated`, `no_answer`.
        expect: the verdict hoped for; the exit code says whether it came true.
        target: "eliminated" means below this share with 95 % confidence.
        margin: "no effect" means closer than this; default half the control's rate.
        alpha: two-sided level of the test.
    """

    metric: Metric = "corruption"
    expect: Verdict | None = None
    target: Share = 0.01
    margin: Share | None = None
    alpha: Share = 0.05

    _open = field_validator("target", "margin", "alpha")(open_share)


class Jit(Value):
    """Directories in which libraries keep compiled kernels (Triton, Inductor, DeepGEMM, …).

    Every arm that changes anything gets its own, unless it sets the variable itself.

    Attributes:
        share: let all arms use those of the host: no cold start, but one arm's kernels may then
            run in the other.
        reason: why that is right here, for the report.
    """

    share: bool = False
    reason: str = ""

    @model_validator(mode="after")
    def _has_reason(self) -> Jit:
        if self.share and not self.reason.strip():
            raise ValueError("`share = true` needs a `reason`, which the report will show")
        return self


class Head(Value):
    """Name, reason and target.

    Attributes:
        name: letters, digits, `_`, `.` and `-`.
        hypothesis: one sentence, printed with the verdict.
        target: a host, group or role of the inventory.
        forced: guards that are meant to be passed: `confounded`, `blocks`.
    """

    name: Name
    hypothesis: str = ""
    target: str
    forced: tuple[Literal["confounded", "blocks"], ...] = ()

    @field_validator("target")
    @classmethod
    def _is_named(cls, target: str) -> str:
        if not target.strip():
            raise ValueError("expected the name of a host, a group or a role of the inventory")
        return target


class Experiment(Value):
    """One question: does this change of the fleet change the outcome?

    Attributes:
        experiment: name, reason and target.
        patch: what the treatment changes in the serving tree.
        env: the treatment's flags: a value, or false to unset.
        control: the other arm.
        observer: things that look but may perturb.
        workload: `toolcall` or `command`.
        trials: how often and in which order.
        verdict: what is judged.
        ready: readiness in layers.
        lease: how long a host waits for us before it restores itself: 1 s to 7 days.
        jit: whether arms may share caches of compiled kernels.
    """

    experiment: Head
    patch: tuple[Patch, ...] = ()
    env: Flags = Field(default_factory=dict)
    control: Control = Control()
    observer: tuple[Observer, ...] = ()
    workload: Workload = ToolcallSpec(kind="toolcall")
    trials: Trials = Trials()
    verdict: VerdictSpec = VerdictSpec()
    ready: Ready = Ready()
    lease: Lease = 60.0
    jit: Jit = Jit()

    _flags = field_validator("env")(checked_flags)
    _once = field_validator("patch")(checked_patches)
    _reached = field_validator("workload")(checked_workload)

    @model_validator(mode="after")
    def _history_counts_the_same(self) -> Experiment:
        if self.control.history is not None:
            self.control.history.bad(self.verdict.metric)
        return self

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.experiment.name
