"""What a runner is given and what it must do: one decode step for a batch of rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from payload.cache.layout import PAGE_TOKENS
from payload.device.contract import Device
from payload.flags import Flags
from payload.indexer.contract import IndexerParts, Stash


@dataclass(frozen=True)
class Row:
    """One sequence's next step.

    Attributes:
        token: the last token of the sequence.
        position: where it goes in the context.
        cursor: the position of the program entry that tells the next token.
        end: the position of the entry that ends the reply.
        slot: where its keys are stored.
        length: the context with it.
    """

    token: int
    position: int
    cursor: int
    end: int
    slot: int
    length: int


@dataclass(frozen=True)
class Batch:
    """What to step.

    Attributes:
        rows: the running sequences, in row order.
        page_table: `[rows, P]` int32 on the host; columns behind a row's last page may hold
            anything that is a page.
    """

    rows: tuple[Row, ...]
    page_table: Tensor


PADDING_ROW = Row(token=0, position=0, cursor=0, end=0, slot=0, length=0)


@dataclass(frozen=True)
class StepInputs:
    """The tensors a step reads and writes; captured graphs know them by address.

    Attributes:
        token, position, cursor, end, slot, length: `[B]` int32, see `Row`.
        page_table: `[B, P]` int32.
        next_token: `[B]` int64, the answer.
        stash: where the indexer's calls are copied, or None.
    """

    token: Tensor
    position: Tensor
    cursor: Tensor
    end: Tensor
    slot: Tensor
    length: Tensor
    page_table: Tensor
    next_token: Tensor
    stash: Stash | None = None

    @staticmethod
    def allocate(rows: int, pages_per_row: int, device: torch.device) -> StepInputs:
        """Return zeroed inputs for the largest batch."""

        def column() -> Tensor:
            return torch.zeros(rows, dtype=torch.int32, device=device)

        return StepInputs(
            token=column(),
            position=column(),
            cursor=column(),
            end=column(),
            slot=column(),
            length=column(),
            page_table=torch.zeros((rows, pages_per_row), dtype=torch.int32, device=device),
            next_token=torch.zeros(rows, dtype=torch.int64, device=device),
        )

    def first(self, rows: int, *, stash: Stash | None = None) -> StepInputs:
        """Return the first rows, sharing memory."""
        return StepInputs(
            token=self.token[:rows],
            position=self.position[:rows],
            cursor=self.cursor[:rows],
            end=self.end[:rows],
            slot=self.slot[:rows],
            length=self.length[:rows],
            page_table=self.page_table[:rows],
            next_token=self.next_token[:rows],
            stash=stash,
        )

    def load(self, batch: Batch, bucket: int) -> None:
        """Copy a batch in, and pad it up to the bucket.

        A padded row has length 0, so that nothing is selected for it, and stores its key in page 0.

        Raises:
            ValueError: the batch's page table is of other rows, or of another number of pages.
        """
        raw = len(batch.rows)
        wanted = (raw, self.page_table.shape[1])
        if batch.page_table.shape != wanted:  # one that is smaller would be repeated
            raise ValueError(f"page table {tuple(batch.page_table.shape)} is not {wanted}")
        padding = [replace(PADDING_ROW, slot=row % PAGE_TOKENS) for row in range(raw, bucket)]
        packed = torch.tensor([astuple(row) for row in (*batch.rows, *padding)], dtype=torch.int32)
        columns = (self.token, self.position, self.cursor, self.end, self.slot, self.length)
        for tensor, values in zip(columns, packed.t(), strict=True):
            tensor[:bucket].copy_(values)
        self.page_table[:raw].copy_(batch.page_table)
        self.page_table[raw:bucket].zero_()


Forward = Callable[[Device, StepInputs], None]


@dataclass(frozen=True)
class RunnerParts:
    """What a variant is built from.

    Attributes:
        device: streams, memory and graphs.
        forward: the model's step, as launches on a device.
        inputs: for the largest batch.
        buckets: batch sizes to capture, ascending.
        index: the indexer's kernels, for comparisons.
        flags: the process's flags.
        log: where progress and findings go.
    """

    device: Device
    forward: Forward
    inputs: StepInputs
    buckets: tuple[int, ...]
    index: IndexerParts
    flags: Flags
    log: logging.Logger


class Runner(Protocol):
    """A variant."""

    @property
    def buckets(self) -> tuple[int, ...]:
        """The batch sizes that have a graph, ascending; empty when there are none."""
        ...

    def prepare(self) -> None:
        """Warm up and capture."""
        ...

    def step(self, batch: Batch) -> list[int]:
        """Return the next token of each row."""
        ...

    def findings(self) -> dict[str, object]:
        """Return what an instrument of the runner has seen; empty when there is none."""
        ...
