"""GE_DIFF: copies of what the captured indexer read and wrote, compared with an eager run of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from payload.device.contract import Device
from payload.indexer.contract import IndexerCall, IndexerParts


def copy(source: Tensor, *, out: Tensor) -> Tensor:
    """Copy a tensor: `copy_` as a kernel."""
    return out.copy_(source)


@dataclass(frozen=True)
class Clone:
    """One layer's clones; the graph refills them at each replay.

    Attributes:
        call: the call with its tensors replaced by clones (the key pool is not cloned).
        logits: `[B, capacity]` as the graph computed them.
        columns: `[B, top_k]` as the graph chose them.
    """

    call: IndexerCall
    logits: Tensor
    columns: Tensor

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """What was cloned of the call."""
        call = self.call
        return (call.q, call.weights, call.page_table, call.lengths)


class BucketStash:
    """The clones of one bucket, made at its capture."""

    def __init__(self) -> None:
        self.clones: dict[int, Clone] = {}

    def record(self, device: Device, call: IndexerCall, logits: Tensor, columns: Tensor) -> None:
        """Make room for a layer's tensors and launch the copies into it."""
        copied = [
            self._copy(device, tensor)
            for tensor in (call.q, call.weights, call.page_table, call.lengths, logits, columns)
        ]
        q, weights, table, lengths, kept_logits, kept_columns = copied
        clone = IndexerCall(
            layer=call.layer,
            q=q,
            weights=weights,
            k_pages=call.k_pages,
            page_table=table,
            lengths=lengths,
            capacity=call.capacity,
            top_k=call.top_k,
        )
        self.clones[call.layer] = Clone(clone, kept_logits, kept_columns)

    def _copy(self, device: Device, tensor: Tensor) -> Tensor:
        # Kept as long as the stash, wherever it lies (on a GPU in the graphs' pool): one that could
        # be overwritten would prove nothing.
        kept = torch.empty(tensor.shape, dtype=tensor.dtype, device=device.torch_device)
        device.launch(copy, tensor, out=kept)
        return kept

    @property
    def size_bytes(self) -> int:
        """What the clones cost."""
        return sum(
            tensor.nbytes
            for clone in self.clones.values()
            for tensor in (*clone.inputs, clone.logits, clone.columns)
        )


class RowGap(NamedTuple):
    """How a row's captured scores and choice differ from the eager ones, on valid columns.

    Attributes:
        finite: columns whose difference is finite.
        wild: columns whose difference is not.
        finite_sum: sum of the finite |captured - eager|.
        finite_max: the largest of them, 0 without any.
        mean: mean of all, not finite if one is not.
        largest: the largest of all, likewise.
        argmax_differs: 1 if the best column differs, else 0.
        topk_differs: 1 if the chosen columns differ, whatever their order, else 0.
    """

    finite: float
    wild: float
    finite_sum: float
    finite_max: float
    mean: float
    largest: float
    argmax_differs: float
    topk_differs: float


def differences(
    captured: tuple[Tensor, Tensor], eager: tuple[Tensor, Tensor], lengths: Tensor
) -> list[RowGap]:
    """Compare logits `[R, capacity]` and columns `[R, top_k]`, all rows at once.

    One transfer brings the numbers of all rows to the host: a row at a time, a batch of 32 would
    wait for the device some thousand times a step.
    """
    reach = torch.arange(captured[0].shape[1], device=lengths.device)
    valid = reach < lengths.unsqueeze(1)
    differs = valid & (captured[0] != eager[0])  # equal infinities differ by NaN
    gap = torch.where(differs, (captured[0] - eager[0]).abs(), 0.0).double()
    finite = gap.isfinite()
    small = torch.where(finite, gap, 0.0)
    best = [
        torch.where(valid, logits, float("-inf")).argmax(dim=1) for logits, _ in (captured, eager)
    ]
    chosen = [columns.sort(dim=1).values for _, columns in (captured, eager)]
    numbers = (  # in the order of RowGap
        (finite & valid).sum(dim=1),
        (~finite).sum(dim=1),
        small.sum(dim=1),
        small.amax(dim=1),
        gap.sum(dim=1) / lengths.clamp_min(1),
        gap.amax(dim=1),
        best[0] != best[1],
        (chosen[0] != chosen[1]).any(dim=1),
    )
    packed = torch.stack([number.double() for number in numbers], dim=1)
    return [RowGap(*row) for row in packed.tolist()]


@dataclass
class Tally:
    """Sums over the valid columns of a bucket's rows.

    Attributes:
        rows: row-layers compared.
        bad_rows: row-layers with another arg-max or another index set.
        columns: valid columns compared.
        sum_abs: sum of |captured - eager|; infinite and NaN differences count as `wild`.
        max_abs: the largest finite difference.
        wild: columns whose difference is not finite.
        argmax: rows whose best column differs.
        topk: rows whose index set differs.
    """

    rows: int = 0
    bad_rows: int = 0
    columns: int = 0
    sum_abs: float = 0.0
    max_abs: float = 0.0
    wild: int = 0
    argmax: int = 0
    topk: int = 0

    def add(self, gap: RowGap) -> bool:
        """Count a row of a layer, and return whether it was chosen otherwise."""
        self.rows += 1
        self.columns += int(gap.finite)
        self.wild += int(gap.wild)
        self.sum_abs += gap.finite_sum
        self.max_abs = max(self.max_abs, gap.finite_max)
        self.argmax += bool(gap.argmax_differs)
        self.topk += bool(gap.topk_differs)
        is_bad = bool(gap.argmax_differs or gap.topk_differs)
        self.bad_rows += is_bad
        return is_bad

    def as_dict(self) -> dict[str, float | int]:
        """Return the tally with the mean in place of the sum."""
        mean = self.sum_abs / self.columns if self.columns else 0.0
        return {
            "rows": self.rows,
            "mean_abs": mean,
            "max_abs": self.max_abs,
            "wild": self.wild,
            "argmax_differs": self.argmax,
            "topk_differs": self.topk,
        }


@dataclass
class Comparison:
    """Recomputes the indexer from a stash and counts how the captured one differs."""

    index: IndexerParts
    log: logging.Logger
    tallies: dict[int, Tally] = field(default_factory=dict)

    def compare(self, stash: BucketStash, *, bucket: int, rows: int) -> None:
        """Compare all layers of one replay, on the valid columns of its real rows only."""
        tally = self.tallies.setdefault(bucket, Tally())
        for layer, clone in stash.clones.items():
            logits = torch.empty_like(clone.logits)
            columns = torch.empty_like(clone.columns)
            call = clone.call
            inputs = (call.q, call.weights, call.k_pages, call.page_table, call.lengths)
            self.index.score(*inputs, out=logits)
            self.index.select(logits, call.lengths, out=columns)
            captured = (clone.logits[:rows], clone.columns[:rows])
            found = differences(captured, (logits[:rows], columns[:rows]), call.lengths[:rows])
            for row, gap in enumerate(found):
                if tally.add(gap):
                    message = "[ge_diff] bs=%d layer=%d row=%d mean=%.3e max=%.3e"
                    self.log.info(message, bucket, layer, row, gap.mean, gap.largest)

    def summary(self) -> dict[str, object]:
        """Return the tallies by bucket."""
        return {str(bucket): tally.as_dict() for bucket, tally in sorted(self.tallies.items())}
