"""A trial's result as data: counts, load, the client's health, and whether it may be used.

`result_to_json` is also the documented JSON that a `command` workload may report; only
`sessions` and `counts` are required there (see `command_result.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fleetctl.spec.metric import Metric
from fleetctl.trial.classes import OutcomeClass, classifier_version, load_classes
from fleetctl.trial.exposure import Exposure, RoundStats, exposure_of
from fleetctl.trial.flags import Finding
from fleetctl.trial.metric import bad_sessions
from fleetctl.trial.outcome import SessionOutcome
from fleetctl.trial.people import peoples_line

RESULT_SCHEMA = 1
MOST_LAG_P99_MS = 100.0
MOST_STALLED_S = 1.0
MOST_STALLED_SHARE = 0.1
LEAST_CONCURRENCY_SHARE = 0.95


@dataclass(frozen=True)
class ClientHealth:
    """How the client itself was doing; a trial it could not drive is void.

    Attributes:
        processes: client processes.
        cpu_share: CPU time over wall time, of the busiest process; 1.0 is a whole core.
        loop_lag_p50_ms: how late a timer of the event loop fired; worst process.
        loop_lag_p99_ms: the same, 99th percentile.
        loop_lag_max_ms: the same, worst case.
        stalled_s: how long the loop stood still altogether, in stops of over 100 ms each; worst
            process. The percentile counts ticks: one stop of a minute is one tick to it.
        wall_s: how long the loop was watched.
    """

    processes: int
    cpu_share: float
    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    loop_lag_max_ms: float
    stalled_s: float = 0.0
    wall_s: float = 0.0


@dataclass(frozen=True)
class CommandRun:
    """How the program of a `command` workload ended.

    Attributes:
        argv: what was run.
        exit_code: its exit code; 128 + signal when a signal ended it; None when it didn't start.
        is_timed_out: it was killed at its deadline.
        reported_by: `json`, `line`, or `nothing`.
        stdout_tail: the end of its output.
        stderr_tail: the end of its messages.
        wall_s: how long it ran.
    """

    argv: tuple[str, ...]
    exit_code: int | None
    is_timed_out: bool
    reported_by: str
    stdout_tail: str
    stderr_tail: str
    wall_s: float


@dataclass(frozen=True)
class TrialResult:
    """What one trial of one arm says.

    Attributes:
        kind: `toolcall` or `command`.
        sessions: sessions asked for.
        counted: sessions that say something about the model: all but infra.
        corrupted: of these, the corrupt ones.
        counts: every class with its number of sessions; they add up to `sessions`.
        outcomes: each session's outcome; empty when a program reported sums only.
        exposure: the load that was really there.
        clean: the same of the sessions that ended well: comparable between arms, since a
            corrupt session's early or endless end does not count.
        client: the client's own health; None when a program drove the load.
        invalid_because: why the trial may not be used; empty when it may.
        classifier: version of the classifier, or `reported`.
        command: how the user's program ended, where there was one.
        by_class: whether the classes are known; a program may tell the corrupted sessions alone.
    """

    kind: str
    sessions: int
    counted: int
    corrupted: int
    counts: tuple[tuple[OutcomeClass, int], ...]
    outcomes: tuple[SessionOutcome, ...] = ()
    exposure: Exposure = field(default_factory=Exposure)
    clean: Exposure = field(default_factory=Exposure)
    client: ClientHealth | None = None
    invalid_because: tuple[str, ...] = ()
    classifier: str = ""
    command: CommandRun | None = None
    by_class: bool = True

    @property
    def is_valid(self) -> bool:
        """Whether the trial may enter a comparison."""
        return not self.invalid_because

    @property
    def count_of(self) -> dict[OutcomeClass, int]:
        """The counts by class."""
        return dict(self.counts)

    def bad(self, metric: Metric) -> int | None:
        """Return the sessions that a metric counts as bad; None where nobody knows them."""
        known = {str(outcome): n for outcome, n in self.counts} if self.by_class else {}
        return bad_sessions(metric, corrupted=self.corrupted, counted=self.counted, counts=known)

    def line(self, metric: Metric = "corruption") -> str:
        """Return the line people know; of corruption where the metric's count is not known."""
        bad = self.bad(metric)
        if bad is None:
            return self.line()
        return peoples_line(bad, self.counted, self.count_of, metric)

    def finer_line(self) -> str:
        """Return every class with its count, in the order of judgement."""
        return " ".join(f"{outcome}={count}" for outcome, count in self.counts)


def summarise(
    *,
    sessions: int,
    outcomes: Iterable[SessionOutcome],
    rounds: Sequence[Sequence[RoundStats]],
    client: ClientHealth,
    wanted_concurrency: int,
    also_invalid: Iterable[str] = (),
) -> TrialResult:
    """Return the result of a toolcall trial."""
    recorded = tuple(outcomes)
    known = {outcome.session: outcome for outcome in recorded}
    lost = len(set(range(sessions)) - known.keys())
    ordered = tuple(known.get(index) or _lost(index) for index in range(sessions))
    exposure = exposure_of(rounds)
    reasons = (*also_invalid, *client_faults(client, exposure, wanted_concurrency))
    tally = Counter(outcome.outcome for outcome in ordered)
    counted = sum(outcome.is_counted for outcome in ordered)
    if not counted:
        reasons = (
            *reasons,
            f"no session says anything about the model: all were infra{_commonest(ordered)}",
        )
    elif exposure.requests and not exposure.rounds:
        reasons = (*reasons, f"no request was answered{_commonest(ordered)}")
    if lost:
        reasons = (*reasons, f"{lost} of {sessions} sessions were never recorded")
    return TrialResult(
        kind="toolcall",
        sessions=sessions,
        counted=counted,
        corrupted=sum(outcome.is_corrupt for outcome in ordered),
        counts=all_counts(tally),
        outcomes=ordered,
        exposure=exposure,
        clean=exposure_of(_of_clean(recorded, rounds)),
        client=client,
        invalid_because=reasons,
        classifier=classifier_version(),
    )


def _commonest(outcomes: Iterable[SessionOutcome]) -> str:
    """Return the finding that most sessions share, with its evidence: why nothing came back."""
    found = Counter(each for outcome in outcomes for each in outcome.findings[:1])
    if not found:
        return ""
    finding, _ = found.most_common(1)[0]
    return (
        f": {finding.flag}, {finding.evidence[:200]}" if finding.evidence else f": {finding.flag}"
    )


def _of_clean(
    outcomes: Sequence[SessionOutcome], rounds: Sequence[Sequence[RoundStats]]
) -> list[Sequence[RoundStats]]:
    """Return the rounds of sessions that ended well; both sequences are in the same order."""
    ended_well = {OutcomeClass.DONE, OutcomeClass.MAXROUNDS}
    pairs = zip(outcomes, rounds, strict=False)
    return [stats for outcome, stats in pairs if outcome.outcome in ended_well]


def _lost(session: int) -> SessionOutcome:
    return SessionOutcome(session, OutcomeClass.INFRA, ("client_aborted",))


def client_faults(client: ClientHealth, exposure: Exposure, wanted: int) -> tuple[str, ...]:
    """Return why the client could not drive the load it was asked for."""
    faults = []
    if client.loop_lag_p99_ms > MOST_LAG_P99_MS:
        faults.append(
            f"the client was overloaded: event loop lag p99 {client.loop_lag_p99_ms:.0f} ms"
            f" > {MOST_LAG_P99_MS:.0f} ms"
        )
    elif client.stalled_s > max(MOST_STALLED_S, MOST_STALLED_SHARE * client.wall_s):
        faults.append(
            f"the client was overloaded: its event loop stood still for {client.stalled_s:.1f} s"
            f" of {client.wall_s:.1f} s"
        )
    if exposure.peak_concurrency < LEAST_CONCURRENCY_SHARE * wanted:
        faults.append(
            f"concurrency {exposure.peak_concurrency} never reached"
            f" {LEAST_CONCURRENCY_SHARE:.0%} of {wanted}"
        )
    return tuple(faults)


def all_counts(tally: Mapping[OutcomeClass, int]) -> tuple[tuple[OutcomeClass, int], ...]:
    """Return every class with its count, zero included, in the order of judgement."""
    return tuple((outcome, tally.get(outcome, 0)) for outcome in OutcomeClass)


def result_to_json(result: TrialResult) -> dict[str, Any]:
    """Return the result as plain JSON values."""
    value = asdict(result)
    value["schema"] = RESULT_SCHEMA
    value["counts"] = {str(outcome): count for outcome, count in result.counts}
    value["corrupt_classes"] = sorted(load_classes().corrupt)
    value["line"] = result.line()
    value["is_valid"] = result.is_valid
    return value


def result_from_json(value: Mapping[str, Any]) -> TrialResult:
    """Return the result that `result_to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: the value is not such a result.
    """
    command = value["command"]
    return TrialResult(
        kind=value["kind"],
        sessions=value["sessions"],
        counted=value["counted"],
        corrupted=value["corrupted"],
        counts=tuple((OutcomeClass(name), count) for name, count in value["counts"].items()),
        outcomes=tuple(outcome_from_json(outcome) for outcome in value["outcomes"]),
        exposure=Exposure(**value["exposure"]),
        clean=Exposure(**value["clean"]),
        client=ClientHealth(**value["client"]) if value["client"] else None,
        invalid_because=tuple(value["invalid_because"]),
        classifier=value["classifier"],
        command=CommandRun(**{**command, "argv": tuple(command["argv"])}) if command else None,
        by_class=value.get("by_class", True),
    )


def outcome_from_json(value: Mapping[str, Any]) -> SessionOutcome:
    """Return a session's outcome from its JSON form (`dataclasses.asdict`)."""
    return SessionOutcome(
        session=value["session"],
        outcome=OutcomeClass(value["outcome"]),
        flags=tuple(value["flags"]),
        round=value["round"],
        findings=tuple(Finding(**finding) for finding in value["findings"]),
    )
