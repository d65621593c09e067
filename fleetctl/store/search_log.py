"""The log of a search: what was asked and what was measured, so that it goes on after any end.

`search.jsonl` of the run's folder is append-only and on disk before the next thing happens. A
search is a fold over its measured lines; a number is given to each question before it is asked,
and its answer counts once, however often it was tried or written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.errors import InputError
from fleetctl.store.atomic import append_line
from fleetctl.store.run_folder import RunFolder

_NAME = "search.jsonl"


@dataclass(frozen=True)
class Asked:
    """One question.

    Attributes:
        number: of the question in the search, from 0.
        build: names of the changes in the build, or how else it is known; the arm's name.
        key: what the search knows the build by: a point, or the changes in it.
        confirms: the change that a confirmation's run is for, or 0 where the first build is held
            to be worse than the last; None in the search itself.
        attempt: how often it was asked before: a killed controller asks again.
    """

    number: int
    build: str
    key: tuple[int, ...]
    confirms: int | None = None
    attempt: int = 0


@dataclass(frozen=True)
class Answered:
    """One question with its measured answer.

    Attributes:
        trial: folder of the transcripts below the run's.
        facts: `TrialFacts.to_json()`.
    """

    asked: Asked
    trial: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class SearchLog:
    """The questions and answers of one run's folder."""

    folder: RunFolder

    def begin(self, digest: str) -> None:
        """Say once what the search is about: a digest over its spec and every patch.

        Raises:
            InputError: the log is that of another search.
        """
        before = next((line["digest"] for line in self._lines() if line["kind"] == "search"), None)
        if before is None:
            self._append({"kind": "search", "digest": digest})
        elif before != digest:
            raise InputError(
                f"run {self.folder.run_id} searched among other changes",
                why="spec or patches are no longer what they were when it began",
                next_step="bring them back, or start a new search without --resume",
            )

    def is_about(self, digest: str) -> bool:
        """Whether the log is that of this search."""
        return any(line["kind"] == "search" and line["digest"] == digest for line in self._lines())

    def ask(self, asked: Asked) -> Asked:
        """Write a question down before it is asked, and return it with its attempt."""
        attempts = sum(
            line["kind"] == "asked" and line["number"] == asked.number for line in self._lines()
        )
        numbered = Asked(asked.number, asked.build, asked.key, asked.confirms, attempts)
        self._append({"kind": "asked", **_question(numbered)})
        return numbered

    def answer(self, answered: Answered) -> None:
        """Write an answer down; a question that has one already keeps it."""
        if all(known.asked.number != answered.asked.number for known in self.answers()):
            self._append(
                {
                    "kind": "measured",
                    **_question(answered.asked),
                    "trial": answered.trial,
                    "facts": dict(answered.facts),
                }
            )

    def unbuildable(self, key: tuple[int, ...], why: str) -> None:
        """Write down that a build can't be made, and why."""
        if key not in self.unbuildables():
            self._append({"kind": "unbuildable", "key": list(key), "why": why})

    def answers(self) -> tuple[Answered, ...]:
        """Return what was measured, each question once, in order."""
        found: dict[int, Answered] = {}
        for line in self._lines():
            if line["kind"] == "measured":
                answered = Answered(_asked(line), str(line["trial"]), line["facts"])
                found.setdefault(answered.asked.number, answered)
        return tuple(found[number] for number in sorted(found))

    def unbuildables(self) -> dict[tuple[int, ...], str]:
        """Return the builds that can't be made, each with its reason."""
        return {
            tuple(line["key"]): str(line["why"])
            for line in self._lines()
            if line["kind"] == "unbuildable"
        }

    def _append(self, line: Mapping[str, object]) -> None:
        append_line(self.folder.path / _NAME, json.dumps(line, ensure_ascii=False))

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Yield the whole lines; one torn by a crash is passed over, its question asked again."""
        path = self.folder.path / _NAME
        if not path.exists():
            return
        for text in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and _is_whole(line):
                yield line


_NEEDED = {
    "search": {"digest"},
    "asked": {"number", "build", "key"},
    "measured": {"number", "build", "key", "trial", "facts"},
    "unbuildable": {"key", "why"},
}


def _is_whole(line: Mapping[str, Any]) -> bool:
    needed = _NEEDED.get(str(line.get("kind")))
    return needed is not None and needed <= set(line)


def _question(asked: Asked) -> dict[str, object]:
    return {
        "number": asked.number,
        "build": asked.build,
        "key": list(asked.key),
        "confirms": asked.confirms,
        "attempt": asked.attempt,
    }


def _asked(line: Mapping[str, Any]) -> Asked:
    return Asked(
        int(line["number"]),
        str(line["build"]),
        tuple(line["key"]),
        line.get("confirms"),
        int(line.get("attempt", 0)),
    )
