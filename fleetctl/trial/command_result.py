"""What a user's own program reports, and the trial result it adds up to.

The documented JSON, all of it optional but the first two:

    {"sessions": 40,
     "counts": {"leak": 2, "no_tool": 0, "error": 0, "infra": 0, "done": 38},
     "corrupted": 2,
     "exposure": {"rounds": 118, "completion_tokens": 9100, "concurrency_s": 512.5, …},
     "invalid_because": ["…"]}

`counts` uses the outcome classes and adds up to `sessions`. Without `corrupted` it is the sum of
the corrupt classes. Without JSON the last line `CORRUPTION sessions: x/n = …` counts.
Nothing is guessed: a number that is no whole one, or a key that stands twice, voids the result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from fleetctl.errors import InputError
from fleetctl.trial.classes import OutcomeClass, load_classes
from fleetctl.trial.exposure import Exposure
from fleetctl.trial.metric import FINE
from fleetctl.trial.people import PeoplesLine, parse_peoples_line
from fleetctl.trial.summary import CommandRun, TrialResult, all_counts

_LINE_NAMES = {"ok-ish": OutcomeClass.DONE, "ok": OutcomeClass.DONE}
_MOST_SIGNS = 200
_HELP = "print the documented JSON or the line `CORRUPTION sessions: x/n = …` (docs/workloads.md)"


def command_result(
    run: CommandRun, *, stdout: str, result_file: str | InputError | None
) -> TrialResult:
    """Return the trial result of a program's run.

    A run that ended badly or said nothing usable gives an invalid result with no sessions
    counted: never a clean one.

    Args:
        run: how it ended.
        stdout: all of its output.
        result_file: what it wrote to FLEETCTL_RESULT, or why that can't be read, or None.
    """
    faults = _run_faults(run)
    try:
        result, reported_by = _read(stdout, result_file)
    except InputError as error:
        faults += (f"{error.what}: {error.why}",)
        result, reported_by = _nothing(), "nothing"
    return replace(
        result,
        command=replace(run, reported_by=reported_by),
        invalid_because=(*faults, *result.invalid_because),
        classifier="reported",
    )


def _run_faults(run: CommandRun) -> tuple[str, ...]:
    if run.is_timed_out:
        return (f"the workload was killed at its deadline after {run.wall_s:.0f} s",)
    if run.exit_code != 0:
        return (f"the workload ended with exit code {run.exit_code}{_last_words(run.stderr_tail)}",)
    return ()


def _last_words(stderr: str) -> str:
    """Return the last thing the program said about its end: most say why there."""
    lines = [" ".join(line.split()) for line in stderr.splitlines() if line.strip()]
    if not lines:
        return ""
    shown = "".join(sign if sign.isprintable() else "?" for sign in lines[-1])
    return f", saying: {shown[:_MOST_SIGNS]}{'…' if len(shown) > _MOST_SIGNS else ''}"


def _nothing() -> TrialResult:
    return TrialResult("command", 0, 0, 0, all_counts({}))


def _read(stdout: str, result_file: str | InputError | None) -> tuple[TrialResult, str]:
    if isinstance(result_file, InputError):
        raise result_file
    text = result_file if result_file and result_file.strip() else _last_json_line(stdout)
    if text:
        return _from_json(text), "json"
    line = parse_peoples_line(stdout)
    if line is None:
        raise InputError("the workload reported nothing", why="no JSON, no line", next_step=_HELP)
    return _from_line(line), "line"


def _last_json_line(stdout: str) -> str:
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    return lines[-1] if lines and lines[-1].startswith("{") else ""


def _from_json(text: str) -> TrialResult:
    try:
        value = json.loads(text, object_pairs_hook=_once)
        sessions = _whole("sessions", value["sessions"])
        tally = {OutcomeClass(name): _whole(name, n) for name, n in value["counts"].items()}
        said = value.get("corrupted")
        corrupted = None if said is None else _whole("corrupted", said)
        exposure = _exposure(value.get("exposure") or {})
        reasons = _reasons(value.get("invalid_because") or ())
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise InputError("the workload's JSON can't be used", why=why, next_step=_HELP) from error
    return replace(
        result := _result(sessions, tally, corrupted),
        exposure=exposure,
        invalid_because=(*reasons, *result.invalid_because),
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"`{key}` stands twice")
        found[key] = value
    return found


def _whole(name: str, value: object) -> int:
    """Return a count; 40.0 is one, 40.9 and "40" are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1:
        raise ValueError(f"`{name}` is {json.dumps(value)[:40]}, not a whole number")
    return int(value)


def _reasons(value: object) -> tuple[str, ...]:
    """Return why the run is void: one text, or a list of them."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        raise ValueError("`invalid_because` is no list of texts")
    return tuple(found)


def _exposure(value: Mapping[str, Any]) -> Exposure:
    known = {field.name: field.default for field in fields(Exposure)}
    for name, amount in value.items():
        if name not in known:
            raise ValueError(f"unknown exposure {name}")
        is_unknown = amount is None and known[name] is None
        if not (is_unknown or _is_amount(amount)):
            raise ValueError(f"exposure `{name}` is {json.dumps(amount)[:40]}, not an amount")
    return Exposure(**value)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value >= 0


def _from_line(line: PeoplesLine) -> TrialResult:
    tally: dict[OutcomeClass, int] = {}
    for name, count in line.parts.items():
        try:
            outcome = _LINE_NAMES.get(name) or OutcomeClass(name)
        except ValueError as error:
            raise InputError(
                "the workload's line has an unknown class", why=name, next_step=_HELP
            ) from error
        tally[outcome] = tally.get(outcome, 0) + count
    if not line.parts:
        tally = {
            OutcomeClass.LEAK: line.corrupted,
            OutcomeClass.DONE: line.sessions - line.corrupted,
        }
    infra = tally.get(OutcomeClass.INFRA, 0)
    sums_without_infra = sum(tally.values()) - infra == line.sessions
    total = line.sessions + infra if sums_without_infra else line.sessions
    return replace(_result(total, tally, line.corrupted), by_class=bool(line.parts))


def _result(sessions: int, tally: Mapping[OutcomeClass, int], corrupted: int | None) -> TrialResult:
    classes = load_classes()
    counted = sessions - sum(tally.get(outcome, 0) for outcome in classes.uncounted)
    if corrupted is None:
        corrupted = sum(tally.get(outcome, 0) for outcome in classes.corrupt)
    if min(tally.values(), default=0) < 0 or sum(tally.values()) != sessions:
        why = f"the counts add up to {sum(tally.values())}, the sessions are {sessions}"
        raise InputError("the workload's counts don't add up", why=why, next_step=_HELP)
    surely = sum(tally.get(outcome, 0) for outcome in classes.corrupt)
    possibly = counted - sum(tally.get(outcome, 0) for outcome in FINE)
    if not surely <= corrupted <= possibly:
        why = (
            f"{corrupted} of {counted} counted sessions are said to be corrupt, and by their "
            f"classes {surely} to {possibly} can be"
        )
        raise InputError("the workload's counts don't add up", why=why, next_step=_HELP)
    nothing = () if counted else ("no session says anything about the model",)
    return TrialResult(
        "command", sessions, counted, corrupted, all_counts(tally), invalid_because=nothing
    )
