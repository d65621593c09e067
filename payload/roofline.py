"""The fewest bytes and operations a call needs, and the least time they take.

The time of a call over its limit is the gap that is left to close. Bytes count each input once and
each output once; what a real kernel moves on top of that is its own fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from payload.cache.layout import PAGE_TOKENS, KeyFormat, page_bytes

F32_BYTES = 4
I32_BYTES = 4


@dataclass(frozen=True)
class Work:
    """What a call must do.

    Attributes:
        hbm_bytes: bytes read from and written to device memory.
        flops: floating-point operations of the matrix units.
    """

    hbm_bytes: int
    flops: int

    def __add__(self, other: Work) -> Work:
        return Work(self.hbm_bytes + other.hbm_bytes, self.flops + other.flops)

    @property
    def flops_per_byte(self) -> float:
        """Arithmetic intensity; below `Machine.balance`, memory is the limit."""
        return self.flops / self.hbm_bytes


@dataclass(frozen=True)
class Machine:
    """What a device was measured to do; datasheet rates are not reached.

    Attributes:
        hbm_bytes_per_s: bytes read plus bytes written by a large copy.
        flops_per_s: rate of a large matrix product in the operand type at hand.
    """

    hbm_bytes_per_s: float
    flops_per_s: float

    @property
    def balance(self) -> float:
        """FLOPs per byte above which arithmetic is the limit."""
        return self.flops_per_s / self.hbm_bytes_per_s


def limit_s(work: Work, machine: Machine) -> float:
    """Return the least seconds `work` takes: the larger of moving its bytes and doing its sums."""
    return max(work.hbm_bytes / machine.hbm_bytes_per_s, work.flops / machine.flops_per_s)


def logits_work(batch: int, tokens: int, heads: int, dim: int, key_format: KeyFormat) -> Work:
    """Return the work of scoring `tokens` keys in each of `batch` rows.

    Whole pages are read, each with its slot of the page table; a score is written for each token.
    """
    pages = -(-tokens // PAGE_TOKENS)
    element_bytes = page_bytes(dim, key_format) // (PAGE_TOKENS * dim)
    row_bytes = (
        pages * (page_bytes(dim, key_format) + I32_BYTES)
        + heads * (dim * element_bytes + F32_BYTES)
        + I32_BYTES
        + tokens * F32_BYTES
    )
    return Work(batch * row_bytes, batch * tokens * 2 * heads * dim)


def select_work(batch: int, tokens: int, k: int) -> Work:
    """Return the work of choosing k of `tokens` scores in each of `batch` rows."""
    return Work(batch * (tokens * F32_BYTES + I32_BYTES + k * I32_BYTES), 0)
