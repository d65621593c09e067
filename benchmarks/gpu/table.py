"""The indexer's measurements as Markdown; numbers are rounded here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Row = Mapping[str, object]
Result = Mapping[str, object]

UNITS = {
    "median_s": ("µs", 1e6, ".1f"),
    "least_s": ("least µs", 1e6, ".1f"),
    "most_s": ("most µs", 1e6, ".1f"),
    "limit_s": ("limit µs", 1e6, ".1f"),
    "bytes_per_s": ("TB/s", 1e-12, ".2f"),
    "of_copy": ("% of copy", 100, ".1f"),
    "of_limit": ("% of roofline", 100, ".1f"),
    "over_captured": ("time over captured", 1, ".2f"),
    "times_ours": ("time over ours", 1, ".2f"),
}


def cell(name: str, value: object) -> str:
    """Return a value in the unit its column is printed in."""
    if name in UNITS and isinstance(value, float):
        _, factor, places = UNITS[name]
        return format(value * factor, places)
    return str(value)


def rows_table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return rows as a Markdown table; a value a row does not have is left empty."""
    titles = [UNITS[name][0] if name in UNITS else name.replace("_", " ") for name in columns]
    lines = [" | ".join(titles), " | ".join("---" for _ in titles)]
    lines += [" | ".join(cell(name, row.get(name, "")) for name in columns) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


SECTIONS = (
    ("curve", "Logits kernel", "format batch tokens median_s least_s most_s bytes_per_s of_copy"),
    ("rivals", "Logits: other ways", "format batch tokens way median_s times_ours failed"),
    ("topk", "Top-k", "k batch tokens cache way median_s least_s most_s times_ours of_copy"),
    ("launches", "Top-k, launch by launch (mean, scores in the cache)", "k way kernel median_s"),
    ("whole", "Whole indexer: logits and top-k", "format batch tokens k median_s limit_s of_limit"),
    ("sweep", "Tilings", "format block_tokens stages warps programs median_s of_copy"),
)


def markdown(result: Result) -> str:
    """Return the page; without speeds if the correctness is red."""
    parts = ["# The indexer on a GPU", facts(result), correctness(result)]
    if not result["is_green"]:
        parts.append("A kernel is wrong on this device, so no speed is reported.")
    for name, title, columns in SECTIONS:
        rows = result.get(name)
        if rows and result["is_green"]:
            parts.append(f"## {title}\n\n{rows_table(rows, columns.split())}")
    return "\n\n".join(parts) + "\n"


def facts(result: Result) -> str:
    """Return the machine, and what it was measured to do in the same run."""
    lines = [f"- {name}: {value}" for name, value in result["facts"].items()]
    if "copy_bytes_per_s" in result:
        copies = result["copy_bytes_per_s"].items()
        lines += [
            f"- copy, read plus written, {name}: {rate / 1e12:.2f} TB/s" for name, rate in copies
        ]
        rates = result["matmul_flops_per_s"].items()
        lines += [f"- matrix product, {name}: {rate / 1e12:.0f} TFLOP/s" for name, rate in rates]
    lines.append(f"- compute-sanitizer memcheck: {result.get('memcheck', 'not run')}")
    if not result["has_deep_gemm"]:
        lines.append("- DeepGEMM: not installed (`sgl-deep-gemm` on PyPI), so not compared")
    return "\n".join(lines)


def correctness(result: Result) -> str:
    """Return the errors against float64 and against the reference selection."""
    errors = result["correctness"].items()
    lines = [f"| {name} | {value:.2g} |" for name, value in errors]
    return "\n".join(["## Correctness", "", "| check | value |", "| --- | --- |", *lines])
