"""Where and how the payload's tests run: interpreted kernels without a GPU, poisoned memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    # Triton reads it when a kernel is defined, so it must be set before any kernel is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A GPU machine on which nothing can be installed has none of these, and no GPU test needs them.
NEEDS = {"engine/test_main.py": "uvicorn", "engine/test_server.py": "openai"}
collect_ignore = [file for file, package in NEEDS.items() if find_spec(package) is None]

POISON = {
    torch.float32: float("nan"),
    torch.bfloat16: float("nan"),
    torch.int32: 0x7FC00000,
    torch.int64: -(1 << 40),
}


def pytest_report_header() -> list[str]:
    """Say what is not even collected."""
    return [f"not collected, {NEEDS[file]} is missing: payload/{file}" for file in collect_ignore]


@pytest.fixture
def device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.device("cuda" if HAS_GPU else "cpu")


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Make what a test draws the same in every run and in any order."""
    torch.manual_seed(1)


@pytest.fixture(autouse=True)
def poisoned_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what `torch.empty` returns: a kernel that reads before it writes can't pass by luck."""
    real_empty: Callable[..., torch.Tensor] = torch.empty

    def empty(*arguments: object, **options: object) -> torch.Tensor:
        tensor = real_empty(*arguments, **options)
        if tensor.dtype in POISON and options.get("out") is None:
            tensor.fill_(POISON[tensor.dtype])
        return tensor

    monkeypatch.setattr(torch, "empty", empty)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU where there is none."""
    if HAS_GPU:
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
