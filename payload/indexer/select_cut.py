"""How `select_bisect` cuts a row, and the memory it needs between its launches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

ON_CHIP = 16384  # scores that one program can hold in registers
SHORT = 4096  # rows up to here are never thinned out
MAXIMA_TILE = 4096  # scores that one program takes maxima of


@dataclass(frozen=True)
class Cut:
    """How rows of `columns` scores are thinned out for a given k.

    Attributes:
        columns: scores in a row, S.
        k: how many are chosen.
        fan: columns of a block, and blocks of a block one level up; a power of two.
        levels: how many times maxima are taken; 0 for short rows.
    """

    columns: int
    k: int
    fan: int
    levels: int

    @staticmethod
    def of(columns: int, k: int) -> Cut:
        """Return the cut for rows of `columns` scores.

        Raises:
            ValueError: k is so large that k blocks do not fit on chip.
        """
        room = triton.next_power_of_2(k)
        fan = 8 if room <= 1024 else 4
        longest = max(SHORT, room * fan)
        if longest > ON_CHIP and columns > ON_CHIP:
            raise ValueError(f"k must be at most {ON_CHIP // fan} for rows of {columns}: {k}")
        levels = 0
        while triton.cdiv(columns, fan**levels) > longest:
            levels += 1
        return Cut(columns, k, fan, levels)

    @property
    def width(self) -> int:
        """Maxima of a row at level 1, the widest; padded so that rows stay aligned."""
        return triton.cdiv(triton.cdiv(self.columns, self.fan), 4) * 4

    @property
    def top(self) -> int:
        """Room for the scores or maxima that the last launch starts from; a power of two."""
        return max(4, triton.next_power_of_2(triton.cdiv(self.columns, self.fan**self.levels)))

    @property
    def chosen(self) -> int:
        """Room for the chosen; a power of two."""
        return triton.next_power_of_2(self.k)

    @property
    def warps(self) -> int:
        """Warps of the last launch, which fastest served the tiles of k = 512 and 2048."""
        largest = max(self.top, self.chosen * self.fan if self.levels else 0)
        return max(4, min(8, largest // 512))

    @property
    def vector(self) -> int:
        """Scores that can be loaded at once without reading past the end of a row."""
        return 4 if self.columns % 4 == 0 else 1


@dataclass(frozen=True)
class Workspace:
    """What one call keeps between its launches; a call must not share it with another.

    Attributes:
        maxima: `[B, levels, width]` float32.
    """

    maxima: Tensor

    @staticmethod
    def allocate(batch: int, columns: int, k: int, *, device: torch.device | str) -> Workspace:
        """Return an uninitialised workspace for rows of `columns` scores."""
        cut = Cut.of(columns, k)
        shape = (batch, cut.levels, cut.width)
        return Workspace(torch.empty(shape, dtype=torch.float32, device=device))

    @property
    def nbytes(self) -> int:
        """Bytes of its buffer."""
        return self.maxima.nbytes
