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
    """Rows 0 to n - 1 run; the rest wait in order of arrival.

    A sequence keeps its row until it ends; then the last row moves into the hole, so that a
    batch has no gaps. When pages run out the youngest sequence goes back to the queue and
    its context is computed again.

    Attributes:
        running: by row.
        waiting: in order.
        page_table: `[max_batch, pages_per_row]` int32, on the host.
    """

    def __init__(self, config: EngineConfig) -> None:
        self.running: list[Sequence] = []
        self.waiting: deque[Sequence] = deque()
        self.page_table = torch.zeros((config.max_batch, config.pages_per_row), dtype=torch.int32)
        self._pool = PagePool(config.cache_pages)
        self._max_batch = config.max_batch

    @property
    def free_pages(self) -> int:
        """Pages that nobody uses."""
        return self._pool.free

    def add(self, sequence: Sequence) -> None:
        """Put a new sequence at the end of the queue."""
        self.waiting.append(sequence)

    def admit(self) -> list[Sequence]:
        """Give rows and pages to those that wait, as far as both last; they need a prefill."""
        admitted = []
        while self.waiting and len(self.running) < self._max_batch:
            pages = self._pool.take(self.waiting[0].pages_needed())
            if pages is None:
                break
            sequence = self.waiting.popleft()
            sequence.pages = pages
            self.running.append(sequence)
            self._write_row(len(self.running) - 1)
            admitted.append(sequence)
        return admitted

    def grow(self) -> None:
        """See that each running sequence has the pages of its next step; evict if it must be."""
        for sequence in sorted(self.running, key=lambda one: one.number):
            while sequence in self.running and sequence.pages_needed() > len(sequence.pages):
                pages = self._pool.take(1)
                if pages is None:
                    self._evict(max(self.running, key=lambda one: one.number))
                    continue
                sequence.pages += pages
                self._write_row(self.running.index(sequence))

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, running or waiting, and free what it has."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return
        row = self.running.index(sequence)
        last = self.running.pop()
        if last is not sequence:
            self.running[row] = last
            self._write_row(row)
        self._release(sequence)

    def table(self) -> Tensor:
        """Return the running rows' page table."""
        return self.page_table[: len(self.running)]

    def _evict(self, sequence: Sequence) -> None:
        self.remove(sequence)
        self.waiting.appendleft(sequence)

    def _release(self, sequence: Sequence) -> None:
        self._pool.give_back(sequence.pages)
        sequence.pages = []

    def _write_row(self, row: int) -> None:
        pages = self.running[row].pages
        self.page_table[row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
