"""How far a result is from the truth, and how far it may be."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Tolerance:
    """The largest relative error that a computation on a dtype may have.

    Attributes:
        relative: bound on `relative_error`.
        reason: where the bound comes from.
    """

    relative: float
    reason: str


# The reference reads the same rounded inputs, so only arithmetic is measured here.
TOLERANCES = {
    torch.float32: Tolerance(1e-5, "float32 products and sums, in any order"),
    torch.bfloat16: Tolerance(1e-5, "bf16 products are exact in float32, and are summed there"),
    torch.float8_e4m3fn: Tolerance(1e-3, "Hopper sums fp8 products in about 14 bits of mantissa"),
}


def tolerance(dtype: torch.dtype) -> Tolerance:
    """Return the tolerance for inputs of `dtype`.

    Raises:
        ValueError: nothing is computed in that dtype here.
    """
    try:
        return TOLERANCES[dtype]
    except KeyError:
        known = ", ".join(str(name) for name in TOLERANCES)
        raise ValueError(f"no tolerance for {dtype}; there is one for {known}") from None


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Return ||actual - expected|| / ||expected|| in float64.

    NaN or infinity anywhere in `actual` or `expected` gives infinity: it never passes. Where
    `expected` is all zeros, 0.0 for equality and infinity otherwise. Both are empty: 0.0.

    Raises:
        ValueError: the shapes differ.
    """
    if actual.shape != expected.shape:
        raise ValueError(f"shapes differ: {tuple(actual.shape)} and {tuple(expected.shape)}")
    truth = expected.detach().to(torch.float64)
    gap = float((actual.detach().to(truth.device, torch.float64) - truth).norm())
    size = float(truth.norm())
    if gap == 0.0:
        return 0.0
    if size == 0.0 or not (gap < float("inf") and size < float("inf")):
        return float("inf")
    return gap / size


def assert_close(actual: Tensor, expected: Tensor, limit: Tolerance) -> None:
    """Fail unless `actual` is within `limit` of `expected`; there is no way to soften it.

    Raises:
        AssertionError: names both the error and the limit.
    """
    error = relative_error(actual, expected)
    if not error <= limit.relative:
        raise AssertionError(
            f"relative error {error:.3e} exceeds {limit.relative:.0e} ({limit.reason})"
        )
