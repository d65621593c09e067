"""JSON as the standard has it: what Python reads beyond it could not be written back."""

from __future__ import annotations

import json
import math
from typing import Any


def read(text: str | bytes | bytearray) -> Any:  # noqa: ANN401 - whatever it holds
    """Return the value.

    Raises:
        ValueError: it is no JSON, is nested too deeply, or has a number that is none or that is
            larger than any float (`NaN`, `1e999`).
    """
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _finite(written: str) -> float:
    value = float(written)
    if math.isinf(value):
        raise ValueError(f"{written} is larger than any number that can be kept")
    return value
