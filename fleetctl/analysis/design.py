"""What is declared before the first run, and the order in which runs are made.

Imports nothing heavy.
"""

from __future__ import annotations

import enum
import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fleetctl.analysis.counts import DrawnBlock
from fleetctl.errors import InputError
from fleetctl.spec.metric import Metric


@dataclass(frozen=True)
class Design:
    """What was declared before the first run.

    Attributes:
        target: rate at or below which the fault counts as eliminated.
        margin: difference that would not matter; None: half the control's rate.
        alpha: two-sided level.
        runs: planned runs per arm; None when nothing was planned.
        looks: runs per arm at which the data may be looked at; the planned end is always one.
        factorial: several variables differ on purpose.
        post_hoc: the question was asked after the data were seen.
        metric: what the counts count.
    """

    target: float = 0.01
    margin: float | None = None
    alpha: float = 0.05
    runs: int | None = None
    looks: tuple[int, ...] = ()
    factorial: bool = False
    post_hoc: bool = False
    metric: Metric = "corruption"

    def __post_init__(self) -> None:
        shares = {"target": self.target, "alpha": self.alpha}
        if self.margin is not None:
            shares["margin"] = self.margin
        for name, value in shares.items():
            if not 0 < value < 1:
                raise _undesignable(
                    f"`{name}` is {value:g}", "it must lie between 0 and 1, both excluded"
                )
        if self.runs is not None and self.runs < 1:
            raise _undesignable(f"`runs` is {self.runs}", "each arm needs a run")
        rising = list(self.looks) == sorted(set(self.looks)) and min(self.looks, default=1) >= 1
        if not rising or (self.runs is not None and max(self.looks, default=0) > self.runs):
            raise _undesignable(
                f"the looks are {', '.join(map(str, self.looks))}",
                "they must rise from 1 and end at the planned runs or before",
            )

    @property
    def declared_looks(self) -> tuple[int, ...]:
        """Looks with the planned end; empty when neither was declared."""
        ends = () if self.runs is None else (self.runs,)
        return tuple(sorted({*self.looks, *ends}))


def _undesignable(what: str, why: str) -> InputError:
    return InputError(what, why=why, next_step="correct the design, such as looks = [4, 6, 8]")


class Order(enum.StrEnum):
    """How the runs of two arms follow each other."""

    INTERLEAVED = "interleaved"
    RANDOMISED = "randomised"
    BLOCKS = "blocks"


class Slot(NamedTuple):
    """One run to be made.

    Attributes:
        position: place in the order, from 0.
        arm: "control" or "treatment".
        run: number of the run in its arm, from 0.
        block: the block inside which the arm was drawn; None where it was not drawn.
    """

    position: int
    arm: str
    run: int
    block: DrawnBlock | None


def schedule(
    runs: int, order: Order, seed: int, *, host: str = "", forced: bool = False
) -> tuple[Slot, ...]:
    """Return the order of `runs` runs in each of two arms on one host.

    INTERLEAVED repeats control-treatment-treatment-control or its mirror, so that a linear drift
    cancels. RANDOMISED draws each block of two and two, as the permuted-block e-value needs.
    Both begin and end with the control. The seed and the host decide everything.

    Raises:
        InputError: BLOCKS (all of one arm, then the other) without `forced`.
    """
    letters = _letters(runs, order, _Dice(f"{seed}/{host}"))
    if order is Order.BLOCKS:
        check_order("".join(letter for letter, _ in letters), forced=forced)
    counters = {"A": itertools.count(), "B": itertools.count()}
    return tuple(
        Slot(position, ARM_NAMES[letter], next(counters[letter]), block)
        for position, (letter, block) in enumerate(letters)
    )


ARM_NAMES = {"A": "control", "B": "treatment"}


class _Dice:
    """Draws from a seed, the same in every version of Python."""

    def __init__(self, seed: str) -> None:
        self.seed = seed
        self._draws = itertools.count()

    def pick(self, options: Sequence[str]) -> str:
        digest = hashlib.sha256(f"{self.seed}/{next(self._draws)}".encode()).digest()
        return options[int.from_bytes(digest[:8], "big") % len(options)]


_Letter = tuple[str, DrawnBlock | None]


def _letters(runs: int, order: Order, dice: _Dice) -> list[_Letter]:
    if order is Order.RANDOMISED:
        return _randomised(runs, dice)
    in_turn = _interleaved(runs, dice) if order is Order.INTERLEAVED else "A" * runs + "B" * runs
    return [(letter, None) for letter in in_turn]


def _interleaved(runs: int, dice: _Dice) -> str:
    if runs < 2:
        return "AB" * runs
    inner = [dice.pick(("ABBA", "BAAB")) for _ in range(runs // 2 - 2)]
    blocks = ["ABBA", *inner, "ABBA"] if runs >= 4 else ["ABBA"]
    if runs % 2 == 0:
        return "".join(blocks)
    odd = dice.pick(("AB", "BA"))
    return "".join(["AB", *blocks] if odd == "AB" else [*blocks, "BA"])


def _randomised(runs: int, dice: _Dice) -> list[_Letter]:
    """Return random blocks; the first and the last run are the control's and belong to none."""
    if runs < 2:
        return [(letter, None) for letter in "AB" * runs]
    sizes = [2] * (runs // 2) + [1] * (runs % 2)
    letters: list[_Letter] = []
    for index, size in enumerate(sizes):
        first, last = index == 0, index == len(sizes) - 1
        controls = size - first - last
        block = DrawnBlock(f"{dice.seed}/{index}", controls + size)
        drawn: list[_Letter] = [
            (letter, block) for letter in _shuffled("A" * controls + "B" * size, dice)
        ]
        letters += [("A", None)] * first + drawn + [("A", None)] * last
    return letters


def _shuffled(letters: str, dice: _Dice) -> str:
    return dice.pick(sorted({"".join(p) for p in itertools.permutations(letters)}))


def letters_of(slots: Sequence[Slot]) -> str:
    """Return an order as people write it: ABBA, A being the control."""
    initial = {name: letter for letter, name in ARM_NAMES.items()}
    return "".join(initial[slot.arm] for slot in sorted(slots))


def is_blocked(letters: str) -> bool:
    """Whether all runs of one arm come before all of the other, so that any drift is an effect."""
    return len(letters) > 2 and "".join(k for k, _ in itertools.groupby(letters)) in ("AB", "BA")


def check_order(letters: str, *, forced: bool = False) -> None:
    """Refuse an order such as AAABBB unless it is forced.

    Raises:
        InputError: all runs of one arm come first.
    """
    if is_blocked(letters) and not forced:
        raise InputError(
            f"the order {letters} makes any drift look like an effect",
            why="all runs of one arm come before the other's",
            next_step='use order = "interleaved", or force it and have the verdict say so',
        )
