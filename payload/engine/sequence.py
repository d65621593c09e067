"""One request on its way: its context, its program, its pages, and what it has said so far."""

from __future__ import annotations

import enum
from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from payload.cache.layout import PAGE_TOKENS
from payload.engine.program import Program
from payload.runner.contract import Row


class Ending(enum.StrEnum):
    """Why a reply ended; the value is the API's `finish_reason`."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass
class Sequence:
    """A request, mutable while it runs.

    Attributes:
        number: unique in the process, in order of arrival.
        prompt: the conversation's tokens.
        program: the reply, compiled.
        max_new: limit of the reply.
        said: the tokens generated so far.
        pages: the pages of its context, in order.
        ending: why it ended; None while it runs or waits.
    """

    number: int
    prompt: tuple[int, ...]
    program: Program
    max_new: int
    said: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    ending: Ending | None = None

    @property
    def fixed_tokens(self) -> int:
        """Tokens before the reply: prompt and program."""
        return len(self.prompt) + len(self.program.entries)

    @property
    def context(self) -> tuple[int, ...]:
        """The tokens whose keys are cached, or must be cached again after an eviction."""
        return (*self.prompt, *self.program.entries, *self.said[:-1])

    @property
    def next_length(self) -> int:
        """The context's length with the next step's own token."""
        return self.fixed_tokens + max(1, len(self.said))

    def pages_needed(self) -> int:
        """Return how many pages the next step needs."""
        return -(-self.next_length // PAGE_TOKENS)

    def row(self, first_token: int) -> Row:
        """Return the next step's row; a reply begins from `first_token`."""
        position = self.next_length - 1
        page = self.pages[position // PAGE_TOKENS]
        return Row(
            token=self.said[-1] if self.said else first_token,
            position=position,
            cursor=len(self.prompt) + len(self.said),
            end=self.fixed_tokens - 1,
            slot=page * PAGE_TOKENS + position % PAGE_TOKENS,
            length=self.next_length,
        )


def pointers(sequence: Sequence, tokens: int) -> tuple[Items[int], Items[int], Items[int]]:
    """Return where each position's value points, for the three layers that follow pointers.

    Layer 0 goes from entry i to entry i + shift, layer 1 mirrors that, layer 2 goes to the token.
    Positions of the prompt point to themselves. Positions behind the program point to its end
    token: a reply that has overrun its program ends.
    """
    base, count = len(sequence.prompt), len(sequence.program.entries)
    shift = count // 3 + 1
    first, second, third = (list(range(tokens)) for _ in range(3))
    for entry in range(count):
        step = (entry + shift) % count
        mirrored = count - 1 - step
        source = sequence.program.sources[entry]
        first[base + entry] = base + step
        second[base + step] = base + mirrored
        third[base + mirrored] = base + entry if source is None else source
    end = base + count - 1
    for position in range(base + count, tokens):
        third[position] = end
    return first, second, third
