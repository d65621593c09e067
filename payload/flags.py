"""The engine's flags: read once, from the environment of the process, as production reads them.

A bad value warns and falls back to the default; an unknown name is never rejected. A flag that is
not set leaves the decision to the variant module, and one that is set beats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

TRUE_WORDS = frozenset({"1", "true", "yes", "y", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "n", "off"})


@dataclass(frozen=True)
class Flags:
    """What the environment asks for; None where it says nothing.

    Attributes:
        bf16_index_k: index keys in bf16 (True) or fp8 (False).
        triton_indexer: score and select with the Triton kernels.
        ge_diff: stash the indexer's inputs and outputs, and compare after each replay.
        idxk_canary: look for writes to index-K pages that no row owns.
        overlap: run the indexer on the side stream.
        log_graph_key: log the bucket and the raw batch of each step.
    """

    bf16_index_k: bool | None = None
    triton_indexer: bool | None = None
    ge_diff: bool | None = None
    idxk_canary: bool | None = None
    overlap: bool | None = None
    log_graph_key: bool | None = None


NAMES = {
    "bf16_index_k": "SGLANG_DSV4_BF16_INDEX_K",
    "triton_indexer": "SGLANG_DSV4_TRITON_INDEXER",
    "ge_diff": "SGLANG_DSV4_GE_DIFF",
    "idxk_canary": "SGLANG_DSV4_IDXK_CANARY",
    "overlap": "SGLANG_OPT_USE_MULTI_STREAM_OVERLAP",
    "log_graph_key": "SGLANG_LOG_DECODE_GRAPH_KEY",
}


def read_flags(environ: Mapping[str, str]) -> tuple[Flags, tuple[str, ...]]:
    """Return the flags, and a warning for each value that is no truth word."""
    values: dict[str, bool | None] = {}
    warnings = []
    for field in fields(Flags):
        name = NAMES[field.name]
        word = environ.get(name, "").strip().lower()
        values[field.name] = True if word in TRUE_WORDS else False if word in FALSE_WORDS else None
        if word and values[field.name] is None:
            warnings.append(f"{name}={environ[name]!r} is no truth word; the default is used")
    return Flags(**values), tuple(warnings)
