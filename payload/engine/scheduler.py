"""Who runs in which row, and who waits: continuous batching over a fixed number of pages."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items

import torch
from torch import Tensor

from payload.cache.contract import PADDING_PAGE
from payload.engine.config import EngineConfig
from payload.engine.sequence import Sequence


class PagePool:
    """The pages that nobody uses."""

    def __init__(self, pages: int) -> None:
        self._free = deque(page for page in range(pages) if page != PADDING_PAGE)

    @property
    def free(self) -> int:
        """How many pages are left."""
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """Return that many pages, or None if there are not so many."""
        if count > len(self._free):
            return None
        return [self._free.popleft() for _ in range(count)]

    def give_back(self, pages: Items[int]) -> None:
        """Free pages."""
        self._free.extend(pages)


class Scheduler:
    """Sequences with a seat run, the rest wait in order of arrival.

    The longest context comes first in a batch: rows start in order, and the long ones should not be
    the last to finish (Graham 1969, longest processing time first). When pages run out the
    youngest sequence goes back to the queue and its context is computed again.

    Attributes:
        running: the batch, row by row.
        waiting: in order.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self._pages = PagePool(config.cache_pages)
        self._seats = list(range(config.max_batch))
        self._seat_of: dict[int, int] = {}
        self._tables = torch.zeros((config.max_batch, config.pages_per_row), dtype=torch.int32)

    @property
    def free_pages(self) -> int:
        """Pages that nobody uses."""
        return self._pages.free

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence at the end of the queue."""
        self.waiting.append(sequence)

    def admit(self) -> list[Sequence]:
        """Give seats and pages to those that wait, as far as both last; they need a prefill."""
        admitted = []
        while self.waiting and self._seats:
            pages = self._pages.take(self.waiting[0].pages_needed())
            if pages is None:
                break
            sequence = self.waiting.popleft()
            sequence.pages = pages
            self._seat_of[sequence.number] = self._seats.pop(0)
            self._write(sequence)
            admitted.append(sequence)
        if admitted:
            self.running += admitted
            self.running.sort(key=lambda one: (-one.next_length, one.number))
        return admitted

    def grow(self) -> None:
        """See that each running sequence has the pages of its next step; evict if it must be."""
        for sequence in sorted(self.running, key=lambda one: one.number):
            while sequence in self.running and sequence.pages_needed() > len(sequence.pages):
                pages = self._pages.take(1)
                if pages is None:
                    self._evict(max(self.running, key=lambda one: one.number))
                    continue
                sequence.pages += pages
                self._write(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, running or waiting, and free what it has."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        self._seats.append(self._seat_of.pop(sequence.number))
        self._pages.give_back(sequence.pages)
        sequence.pages = []

    def table(self) -> Tensor:
        """Return the page table of the batch, `[rows, pages_per_row]` int32, on the host."""
        seats = [self._seat_of[sequence.number] for sequence in self.running]
        return self._tables[seats]

    def _evict(self, sequence: Sequence) -> None:
        self.remove(sequence)
        self.waiting.appendleft(sequence)

    def _write(self, sequence: Sequence) -> None:
        pages = torch.tensor(sequence.pages, dtype=torch.int32)
        self._tables[self._seat_of[sequence.number], : len(sequence.pages)] = pages
