"""GE_DIFF: copies of what the captured indexer read and wrote, compared with an eager run of it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

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
        # Outside the graph's memory: a stash that could be overwritten would prove nothing.
        kept = torch.empty(tensor.shape, dtype=tensor.dtype, device=device.torch_device)
        device.launch(copy, tensor, out=kept)
        return kept

    @property
    def size_bytes(self) -> int:
        """What the clones cost."""
        return sum(
            tensor.nbytes
            for clone in self.clones.values()
            for tensor in (clone.call.q, clone.call.weights, clone.logits, clone.columns)
        )


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
            for row, length in enumerate(call.lengths[:rows].tolist()):
                eager = (logits[row, :length], columns[row])
                captured = (clone.logits[row, :length], clone.columns[row])
                if self._count(tally, captured, eager):
                    self._report(bucket, layer, row, captured[0], eager[0])

    def summary(self) -> dict[str, object]:
        """Return the tallies by bucket."""
        return {str(bucket): tally.as_dict() for bucket, tally in sorted(self.tallies.items())}

    def _count(
        self, tally: Tally, captured: tuple[Tensor, Tensor], eager: tuple[Tensor, Tensor]
    ) -> bool:
        gap = (captured[0] - eager[0]).abs()
        finite = gap[gap.isfinite()]
        tally.rows += 1
        tally.columns += finite.numel()
        tally.wild += gap.numel() - finite.numel()
        tally.sum_abs += float(finite.sum())
        tally.max_abs = max(tally.max_abs, float(finite.max()) if finite.numel() else 0.0)
        best_differs = bool(gap.numel()) and int(captured[0].argmax()) != int(eager[0].argmax())
        set_differs = set(captured[1].tolist()) != set(eager[1].tolist())
        tally.argmax += best_differs
        tally.topk += set_differs
        tally.bad_rows += best_differs or set_differs
        return best_differs or set_differs

    def _report(self, bucket: int, layer: int, row: int, captured: Tensor, eager: Tensor) -> None:
        gap = (captured - eager).abs()
        message = "[ge_diff] bs=%d layer=%d row=%d mean=%.3e max=%.3e"
        self.log.info(message, bucket, layer, row, float(gap.mean()), float(gap.max()))
