"""Stored trials judged again, offline: the same counts, and what another classifier changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.errors import InputError
from fleetctl.serving.transcripts import SUFFIX, TranscriptFolder, read_transcripts
from fleetctl.trial.classes import OutcomeClass, classifier_version
from fleetctl.trial.events import from_json
from fleetctl.trial.outcome import SessionOutcome, classify
from fleetctl.trial.people import peoples_line
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
    """

    folder: Path
    labels: dict[str, str]
    sessions: int
    recorded_by: tuple[str, ...]
    before: tuple[SessionOutcome, ...]
    now: tuple[SessionOutcome, ...]

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
        """Whether this classifier finds exactly what was recorded."""
        return not self.changes

    @property
    def must_agree(self) -> bool:
        """Whether it was recorded by this very classifier, so that a change is a fault."""
        return self.recorded_by == (classifier_version(),)

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
    """Judge every stored trial below a folder again.

    Raises:
        InputError: there are no transcripts, or they are damaged.
    """
    folders = sorted({file.parent for file in folder.rglob(f"transcripts.*{SUFFIX}")})
    if not folders:
        raise InputError(
            f"no transcripts below {folder}",
            why=f"no file transcripts.*{SUFFIX} was found",
            next_step="name a run's folder, such as one below runs/",
        )
    return tuple(_trial(each) for each in folders)


def _trial(folder: Path) -> Reclassified:
    head: dict[str, Any] = {}
    versions: set[str] = set()
    before: dict[int, SessionOutcome] = {}
    now: dict[int, SessionOutcome] = {}
    for line in _lines(folder):
        if line["kind"] == "trial":
            head = line
        if line["kind"] == "session":
            record = from_json(line)
            versions.add(line["classifier"])
            before[record.session] = outcome_from_json(line["outcome"])
            now[record.session] = classify(record)
    return Reclassified(
        folder=folder,
        labels=dict(head.get("labels", {})),
        sessions=int(head.get("workload", {}).get("sessions", len(now))),
        recorded_by=tuple(sorted(versions)),
        before=tuple(before[session] for session in sorted(before)),
        now=tuple(now[session] for session in sorted(now)),
    )


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for file in TranscriptFolder(folder).files():
        try:
            yield from read_transcripts(file)
        except (KeyError, TypeError) as error:
            raise InputError(
                f"not a transcript of fleetctl: {file}", why=repr(error), next_step="check the path"
            ) from error
