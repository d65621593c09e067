"""The outcome classes: their order, their flags, and which of them are corruption."""

from __future__ import annotations

import enum
import functools
import tomllib
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from importlib import resources

from fleetctl.trial.garbage import GarbageLimits
from fleetctl.trial.markup import load_markup

CODE_VERSION = 3  # raise it when the code judges a stored session differently


class OutcomeClass(enum.StrEnum):
    """What a session came to; the order is the order of judgement."""

    INFRA = "infra"
    TIMEOUT = "timeout"
    ERROR = "error"
    LEAK = "leak"
    BAD_ARGS = "bad_args"
    WRONG_TOOL = "wrong_tool"
    ARG_MISMATCH = "arg_mismatch"
    CROSS_TALK = "cross_talk"
    NO_TOOL = "no_tool"
    GARBAGE = "garbage"
    TRUNCATED = "truncated"
    NO_ANSWER = "no_answer"
    MAXROUNDS = "maxrounds"
    DONE = "done"


@dataclass(frozen=True)
class Classes:
    """The content of outcomes.toml.

    Attributes:
        version: of the file.
        flags: the flags that make a class, in the order of judgement.
        corrupt: classes that are corruption.
        uncounted: classes that are neither corrupt nor clean.
        garbage: thresholds.
    """

    version: int
    flags: tuple[tuple[OutcomeClass, frozenset[str]], ...]
    corrupt: frozenset[OutcomeClass]
    uncounted: frozenset[OutcomeClass]
    garbage: GarbageLimits

    def first(self, flags: AbstractSet[str]) -> OutcomeClass:
        """Return the first class that has one of the flags; `done` when none has."""
        hits = (outcome for outcome, own in self.flags if own & flags)
        return next(hits, OutcomeClass.DONE)


@functools.cache
def load_classes() -> Classes:
    """Return the classes of outcomes.toml."""
    text = resources.files("fleetctl.trial").joinpath("outcomes.toml").read_text("utf-8")
    data = tomllib.loads(text)
    entries = {OutcomeClass(entry["name"]): entry for entry in data["class"]}
    return Classes(
        version=int(data["version"]),
        flags=tuple((outcome, frozenset(entry["flags"])) for outcome, entry in entries.items()),
        corrupt=frozenset(outcome for outcome, entry in entries.items() if entry.get("corrupt")),
        uncounted=frozenset(o for o, entry in entries.items() if not entry.get("counted", True)),
        garbage=GarbageLimits(**data["garbage"]),
    )


def classifier_version() -> str:
    """Return what names the classifier in every result: code, markup data, outcome data."""
    return f"{CODE_VERSION}.{load_markup().version}.{load_classes().version}"
