"""`fleetctl classify` and `fleetctl reclassify`: stored conversations, judged offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.options import DEFAULT_RUNS, AsJson, RunsPath
from fleetctl.spec.quoted import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleetctl.errors import FleetError
    from fleetctl.serving.reclassify import Reclassified
    from fleetctl.trial.conversation import Known
    from fleetctl.trial.events import SessionRecord
    from fleetctl.trial.outcome import SessionOutcome


def classify(
    files: Annotated[
        list[str],
        typer.Argument(help="Raw SSE, responses, histories or transcripts; - is stdin."),
    ],
    request: Annotated[
        Path | None,
        typer.Option(help="JSON body of the request, for files without one.", show_default=False),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="JSON with the planted truth, for files without.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Classify stored conversations of any server.

    Exits 3 when a file, or the rest of one, could not be understood; the others are classified.
    A file holds raw server-sent events, a JSON response, a message history, fleetctl's
    transcripts, or an exchange with its request and the planted truth:
    {"request": {…}, "response": {…} or "sse": "…", "truth": {"tool": "…", "arguments": {…}}}.
    """
    from collections import Counter

    from fleetctl.cli.boundary import print_error
    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.errors import ExitCode
    from fleetctl.trial.classes import classifier_version
    from fleetctl.trial.people import peoples_line
    from fleetctl.trial.summary import all_counts

    judged, damaged = _read_all(files, _known(request, truth))
    outcomes = [outcome for _, outcome in judged]
    counts = dict(all_counts(Counter(outcome.outcome for outcome in outcomes)))
    corrupted = sum(outcome.is_corrupt for outcome in outcomes)
    counted = sum(outcome.is_counted for outcome in outcomes)
    line = peoples_line(corrupted, counted, counts)
    if as_json:
        sessions = [{"file": name, **_session_json(outcome)} for name, outcome in judged]
        head = {"classifier": classifier_version(), "corrupted": corrupted, "counted": counted}
        unread = [{"file": name, "what": e.what, "why": e.why} for name, e in damaged]
        found = {"line": line, "counts": counts, "sessions": sessions, "not_understood": unread}
        print_json(head | found)
    else:
        print_lines(f"{name}: {session_line(outcome)}" for name, outcome in judged)
        print_lines([line])
    for _, error in damaged:
        print_error(error)
    return ExitCode.REFUSED if damaged else ExitCode.OK


def reclassify(
    run: Annotated[
        Path, typer.Argument(help="A run's id, `latest`, or any folder of transcripts.")
    ],
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Judge a stored run again, offline: reproduce its counts, show what has changed.

    Exits 8 when the same classifier finds something else than was recorded, or when transcripts
    are damaged; what can be read is judged all the same.
    """
    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.errors import ExitCode
    from fleetctl.serving.reclassify import reclassify as judge_again
    from fleetctl.store.run_folder import find_run
    from fleetctl.trial.classes import classifier_version

    folder = run if run.exists() else find_run(runs, str(run)).path
    trials = judge_again(folder)
    if as_json:
        found = [_trial_json(trial) for trial in trials]
        print_json({"classifier": classifier_version(), "trials": found})
    else:
        print_lines(line for trial in trials for line in _trial_lines(trial, folder))
    is_faulty = any(trial.must_agree and not trial.is_reproduced for trial in trials)
    return ExitCode.INVALID if is_faulty else ExitCode.OK


def _known(request: Path | None, truth: Path | None) -> Known:
    import json

    from fleetctl.errors import InputError
    from fleetctl.trial.conversation import Known, truth_from_json
    from fleetctl.trial.events import Truth
    from fleetctl.trial.reasons import in_words

    try:
        found = truth_from_json(json.loads(_read(str(truth)))) if truth else Truth()
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise InputError(
            f"not a planted truth: {truth}",
            why=in_words(error),
            next_step='write for example {"tool": "lookup_order", "arguments": {"order_id": "…"}}',
        ) from error
    return Known(_read(str(request)) if request else "", found)


def _read_all(
    files: list[str], known: Known
) -> tuple[list[tuple[str, SessionOutcome]], list[tuple[str, FleetError]]]:
    """Return every session's outcome with its file, and what could not be understood.

    Raises:
        FleetError: nothing at all could be understood.
    """
    from fleetctl.errors import FleetError
    from fleetctl.trial.outcome import classify as classify_session

    judged: list[tuple[str, SessionOutcome]] = []
    damaged: list[tuple[str, FleetError]] = []
    for name in files:
        try:
            judged.extend((name, classify_session(each)) for each in _conversations(name, known))
        except FleetError as error:
            damaged.append((name, error))
    if damaged and not judged:
        raise _nothing_read(damaged)
    return judged, damaged


def _nothing_read(damaged: list[tuple[str, FleetError]]) -> FleetError:
    """Return the one error of a command that could read none of its files; it names them all."""
    from fleetctl.errors import InputError

    if len(damaged) == 1:
        return damaged[0][1]
    return InputError(
        f"none of {len(damaged)} files could be classified",
        why="\n       ".join(f"{error.what}: {error.why}" for _, error in damaged),
        next_step=damaged[0][1].next_step,
    )


def _conversations(name: str, known: Known) -> Iterator[SessionRecord]:
    from fleetctl.serving.reclassify import stored_sessions
    from fleetctl.trial.conversation import read_conversations

    if name.endswith(".gz"):
        return stored_sessions(Path(name))
    return read_conversations(_read(name), name, known)


def _read(name: str) -> str:
    import sys

    from fleetctl.errors import InputError

    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise InputError(
            f"can't read {name}", why=str(error.strerror), next_step="check the path"
        ) from error
    return data.decode("utf-8", "surrogateescape")


def _trial_lines(trial: Reclassified, run: Path) -> list[str]:
    name = str(trial.folder.relative_to(run)) if trial.folder != run else str(run)
    labels = " ".join(f"{key}={value}" for key, value in sorted(trial.labels.items()))
    recorded = f"recorded by classifier {', '.join(trial.recorded_by) or 'none'}"
    head = f"{name}{f' ({labels})' if labels else ''}: {recorded}"
    damage = [f"  DAMAGED {text}" for text in trial.damage]
    if trial.is_reproduced:
        return [f"{head}, reproduced", f"  {trial.line(trial.now)}"]
    changes = [
        f"  session {each.session}: {each.before.outcome} -> {each.now.outcome} "
        f"({', '.join(each.now.flags) or 'no flags'})"
        for each in trial.changes
    ]
    before, now = trial.line(trial.before), trial.line(trial.now)
    told = f"{head}, sessions that change: {len(changes)}"
    return [told, f"  was {before}", f"  now {now}", *changes, *damage]


def _trial_json(trial: Reclassified) -> dict[str, object]:
    changes = [
        {"session": each.session, "before": each.before.outcome, "now": each.now.outcome}
        | {"flags_before": each.before.flags, "flags_now": each.now.flags}
        for each in trial.changes
    ]
    return {
        "folder": str(trial.folder),
        "labels": trial.labels,
        "sessions": trial.sessions,
        "recorded_by": trial.recorded_by,
        "is_reproduced": trial.is_reproduced,
        "damage": trial.damage,
        "counts_recorded": trial.counts(trial.before),
        "counts": trial.counts(trial.now),
        "line": trial.line(trial.now),
        "changes": changes,
    }


def session_line(outcome: SessionOutcome) -> str:
    """Return one line about a session: where and what it was decided by."""
    where = f"session {outcome.session}, round {outcome.round}: {outcome.outcome}"
    found = outcome.evidence
    return f"{where}, {found.flag}: {quoted(found.evidence[:100])}" if found else where


def _session_json(outcome: SessionOutcome) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(outcome), "is_corrupt": outcome.is_corrupt, "is_counted": outcome.is_counted}
