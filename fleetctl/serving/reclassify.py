"""Stored trials judged again, offline: the same counts, and what another classifier changes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.errors import InputError
from fleetctl.serving.transcripts import SUFFIX, TranscriptFolder, read_transcripts
from fleetctl.trial.classes import OutcomeClass, classifier_version
from fleetctl.trial.events import SessionRecord, from_json
from fleetctl.trial.outcome import SessionOutcome, classify
from fleetctl.trial.people import peoples_line
from fleetctl.trial.reasons import Odd, in_words
from fleetctl.trial.summary import all_counts, outcome_from_json


@dataclass(frozen=True)
class Change:
    """A session that is judged differently now.

    Attributes:
        session: its index.
        before: its outcome as recorded.
        now: its outcome under this classifier.
    """

    session: int
    before: SessionOutcome
    now: SessionOutcome


@dataclass(frozen=True)
class Reclassified:
    """One stored trial, judged again.

    Attributes:
        folder: where its transcripts are.
        labels: what it belongs to, such as arm and run.
        sessions: sessions it was to have.
        recorded_by: versions of the classifiers that judged it.
        before: the outcomes as recorded.
        now: the outcomes under this classifier.
        damage: what could not be read, one text for each file; sessions before it were judged.
    """

    folder: Path
    labels: dict[str, str]
    sessions: int
    recorded_by: tuple[str, ...]
    before: tuple[SessionOutcome, ...]
    now: tuple[SessionOutcome, ...]
    damage: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[Change, ...]:
        """Sessions whose class or flags differ."""
        pairs = zip(self.before, self.now, strict=True)
        return tuple(
            Change(old.session, old, new)
            for old, new in pairs
            if (old.outcome, old.flags, old.round) != (new.outcome, new.flags, new.round)
        )

    @property
    def is_reproduced(self) -> bool:
        """Whether everything could be read and this classifier finds just what was recorded."""
        return not self.changes and not self.damage

    @property
    def must_agree(self) -> bool:
        """Whether a difference is a fault: recorded by this very classifier, or damaged."""
        return bool(self.damage) or self.recorded_by == (classifier_version(),)

    def line(self, outcomes: tuple[SessionOutcome, ...]) -> str:
        """Return the people's line for the outcomes before or now."""
        return peoples_line(
            sum(outcome.is_corrupt for outcome in outcomes),
            sum(outcome.is_counted for outcome in outcomes),
            self.counts(outcomes),
        )

    def counts(self, outcomes: tuple[SessionOutcome, ...]) -> dict[OutcomeClass, int]:
        """Return every class with its count; sessions without a record are infra."""
        tally = Counter(outcome.outcome for outcome in outcomes)
        tally[OutcomeClass.INFRA] += max(0, self.sessions - len(outcomes))
        return dict(all_counts(tally))


def reclassify(folder: Path) -> tuple[Reclassified, ...]:
    """Judge every stored trial below a folder again, damaged ones as far as they can be read.

    Raises:
        InputError: there are no transcripts.
    """
    folders = sorted({file.parent for file in folder.rglob(f"transcripts.*{SUFFIX}")})
    if not folders:
        raise InputError(
            f"no transcripts below {folder}",
            why=f"no file transcripts.*{SUFFIX} was found; a program of your own stores none",
            next_step="name the folder of a run of the built-in workload, such as one below runs/",
        )
    return tuple(_trial(each) for each in folders)


def stored_sessions(path: Path) -> Iterator[SessionRecord]:
    """Yield the sessions of one transcript file.

    Raises:
        InputError: it can't be read, is damaged, or holds no session; what comes before the
            damage was yielded.
    """
    found = 0
    for line in read_transcripts(path):
        if _kind(path, line) == _SESSION:
            found += 1
            yield _record(path, line)
    if not found:
        raise InputError(
            "a transcript holds no session",
            why=f"{path} was cut before its first session ended, or is empty",
            next_step="repeat the trial",
        )


_SESSION = "session"
_KINDS = ("trial", _SESSION, "end")


@dataclass
class _Found:
    """What the files of a trial gave."""

    head: dict[str, Any] = field(default_factory=dict)
    versions: set[str] = field(default_factory=set)
    before: dict[int, SessionOutcome] = field(default_factory=dict)
    now: dict[int, SessionOutcome] = field(default_factory=dict)

    def take(self, file: Path, line: dict[str, Any]) -> None:
        kind = _kind(file, line)
        if kind == "trial":
            self.head = line
        if kind != _SESSION:
            return
        record = _record(file, line)
        try:
            before, version = outcome_from_json(line["outcome"]), str(line["classifier"])
        except _SHAPE as error:
            raise _no_record(file, error) from error
        self.versions.add(version)
        self.before[record.session] = before
        self.now[record.session] = classify(record)


def _trial(folder: Path) -> Reclassified:
    found, damage = _Found(), []
    for file in TranscriptFolder(folder).files():
        try:
            for line in read_transcripts(file):
                found.take(file, line)
        except InputError as error:
            damage.append(f"{error.what}: {error.why}")
    workload = found.head.get("workload")
    planned = workload.get("sessions") if isinstance(workload, dict) else None
    labels = found.head.get("labels")
    return Reclassified(
        folder=folder,
        labels=labels if isinstance(labels, dict) else {},
        sessions=planned if isinstance(planned, int) else len(found.now),
        recorded_by=tuple(sorted(found.versions)),
        before=tuple(found.before[session] for session in sorted(found.before)),
        now=tuple(found.now[session] for session in sorted(found.now)),
        damage=tuple(damage),
    )


_SHAPE = (KeyError, TypeError, ValueError, AttributeError)


def _kind(file: Path, line: dict[str, Any]) -> str:
    kind = line.get("kind")
    if kind not in _KINDS:
        raise _no_record(file, Odd(f"it is of kind {json.dumps(kind)}"))
    return str(kind)


def _record(file: Path, line: dict[str, Any]) -> SessionRecord:
    try:
        return from_json(line)
    except _SHAPE as error:
        raise _no_record(file, error) from error


def _no_record(file: Path, error: Exception) -> InputError:
    return InputError(
        "a transcript is damaged",
        why=f"{file}: a line is no record of fleetctl ({in_words(error)})",
        next_step="the lines before it can still be read with `zcat`",
    )
