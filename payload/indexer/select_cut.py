"""How `select_bisect` cuts a row, and the memory it needs between its launches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

ON_CHIP = 16384  # scores that one program can hold in registers
SHORT = 4096  # rows up to here are never thinned out
MAXIMA_TILE = 4096  # scores that one program takes maxima of
BOUND_TILE = 8192  # the same where it also bounds them: the larger, the fewer columns are listed
SEGMENT = 8192  # scores that one program lists candidates of
LISTED = range(65536, 262144 + 1)  # columns of rows whose candidates are listed
LISTED_ROWS = 32  # up to which that was seen to pay


@dataclass(frozen=True)
class Cut:
    """How rows of `columns` scores are thinned out for a given k.

    Attributes:
        columns: scores in a row, S.
        k: how many are chosen.
        fan: columns of a block, and blocks of a block one level up; a power of two.
        levels: how many times maxima are taken; 0 for short rows.
        batch: how many rows there are.
    """

    columns: int
    k: int
    fan: int
    levels: int
    batch: int

    @staticmethod
    def of(columns: int, k: int, batch: int = 1) -> Cut:
        """Return the cut for `batch` rows of `columns` scores.

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
        return Cut(columns, k, fan, levels, batch)

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

    @property
    def tile(self) -> int:
        """Scores that one program of the first launch takes maxima of."""
        return BOUND_TILE if self.segments else MAXIMA_TILE

    @property
    def groups(self) -> int:
        """Programs that take the maxima of a row's scores, and bounds of a row."""
        return triton.cdiv(self.columns, self.tile)

    @property
    def segments(self) -> int:
        """Segments of a row whose candidates are listed; 0 if the last launch finds its own way.

        With two levels, and twice as many blocks as will be chosen, few scores besides the chosen
        reach what k blocks reach. Many rows keep a GPU busy without it.
        """
        is_listed = (
            self.batch <= LISTED_ROWS
            and self.columns in LISTED
            and self.levels == 2
            and self.columns >= 2 * self.k * self.fan**2
        )
        return triton.cdiv(self.columns, SEGMENT) if is_listed else 0

    def starts_early(self, device: torch.device) -> bool:
        """Return whether a row's later launches get ready while the one before them still runs.

        They wait for its end before they read anything. That hides the time that starting takes,
        on GPUs that can do it, which are Hopper and later ones.
        """
        is_nvidia = device.type == "cuda" and torch.version.cuda is not None
        is_able = is_nvidia and torch.cuda.get_device_capability(device) >= (9, 0)
        return is_able and self.segments > 0

    @property
    def room(self) -> int:
        """Room for a row's candidates when the last launch chooses from them; a power of two."""
        return max(1024, 2 * self.chosen, min(4 * self.chosen, 4096))

    @property
    def share(self) -> int:
        """Room for the candidates of a segment; a power of two."""
        return self.room // 4

    @property
    def bounds_at(self) -> int:
        """Where the bounds of groups start, behind each segment's keys, columns and count."""
        return self.segments * (2 * self.share + 1)

    @property
    def words(self) -> int:
        """Numbers kept for the candidates of a row, padded so that rows stay aligned."""
        quads_at = self.bounds_at + triton.next_power_of_2(self.groups)
        return triton.cdiv(quads_at + self.segments * SEGMENT // 4, 4) * 4 if self.segments else 0


@dataclass(frozen=True)
class Workspace:
    """What one call keeps between its launches; a call must not share it with another.

    Attributes:
        maxima: `[B, levels, width]` float32.
        candidates: `[B, words]` int32: of each segment keys and columns, its count, and bounds.
    """

    maxima: Tensor
    candidates: Tensor

    @staticmethod
    def allocate(batch: int, columns: int, k: int, *, device: torch.device | str) -> Workspace:
        """Return an uninitialised workspace for rows of `columns` scores."""
        cut = Cut.of(columns, k, batch)
        maxima = torch.empty((batch, cut.levels, cut.width), dtype=torch.float32, device=device)
        candidates = torch.empty((batch, cut.words), dtype=torch.int32, device=device)
        return Workspace(maxima, candidates)

    def fits(self, cut: Cut, device: torch.device) -> bool:
        """Return whether it is laid out for this cut, on this device."""
        shapes = (cut.batch, cut.levels, cut.width), (cut.batch, cut.words)
        kinds = torch.float32, torch.int32
        return all(
            (tuple(each.shape), each.dtype, each.device) == (shape, dtype, device)
            and each.is_contiguous()
            for each, shape, dtype in zip(
                (self.maxima, self.candidates), shapes, kinds, strict=True
            )
        )

    @property
    def nbytes(self) -> int:
        """Bytes of its buffers."""
        return self.maxima.nbytes + self.candidates.nbytes
