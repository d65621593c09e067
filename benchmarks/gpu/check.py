"""Whether the kernels are right on this device; no speed is reported while one is not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence

import torch

from payload.cache.layout import KeyFormat
from payload.indexer import kernel, reference, select_bisect
from payload.indexer.kernel_case import Case, random_case
from payload.numerics import relative_error

LIMIT = 1e-2  # the bound for bf16 and fp8 logits against float64
SMALL_LENGTHS = [0, 1, 63, 64, 65, 127, 128, 700]
EDGE_LENGTHS = [131071, 131009, 65537, 65536, 64, 63, 1, 0]
FULL_LENGTHS = [131072] * 24 + EDGE_LENGTHS
MEMCHECK_DEADLINE_S = 200


def logits_error(case: Case) -> float:
    """Return the kernel's relative error on a poisoned output; infinity if it wrote elsewhere."""
    out = case.poisoned_out()
    kernel.index_logits(case.q, case.weights, case.k_pages, case.page_table, case.lengths, out=out)
    valid = case.valid()
    if not out[~valid].isnan().all():
        return float("inf")
    return relative_error(out[valid], case.truth()[valid])


def wrong_rows(case: Case, k: int) -> int:
    """Return in how many rows the kernel's top-k differs from the reference, on equal logits."""
    logits = case.poisoned_out()
    kernel.index_logits(
        case.q, case.weights, case.k_pages, case.page_table, case.lengths, out=logits
    )
    chosen = select_bisect.select_topk(logits, case.lengths, k).sort(1).values
    expected = reference.select_topk(logits, case.lengths, k).sort(1).values
    return int((chosen != expected).any(1).sum())


def correctness(
    lengths: Sequence[int],
    *,
    heads: int = 64,
    dim: int = 128,
    ks: Sequence[int] = (512, 1024, 2048),
) -> dict[str, float]:
    """Return the errors of both formats; each must be at most `LIMIT`, each count 0."""
    found: dict[str, float] = {}
    for key_format in (KeyFormat.BF16, KeyFormat.FP8):
        case = random_case(lengths, key_format, heads=heads, dim=dim, device="cuda")
        name = key_format.value
        found[f"{name} logits, relative error"] = logits_error(case)
        for k in ks:
            found[f"{name} top-{k}, wrong rows"] = wrong_rows(case, k)
    return found


def is_green(found: dict[str, float]) -> bool:
    """Return whether every error is within its bound."""
    return all(
        value <= LIMIT if name.endswith("error") else value == 0 for name, value in found.items()
    )


def memcheck() -> str:
    """Run the small cases under compute-sanitizer; return its last line, or why there is none."""
    if shutil.which("compute-sanitizer") is None:
        return "not run: compute-sanitizer is not on PATH"
    command = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9"]
    try:
        done = subprocess.run(
            [*command, sys.executable, "-m", "benchmarks.gpu.check"],
            capture_output=True,
            text=True,
            check=False,
            timeout=MEMCHECK_DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return f"not finished in {MEMCHECK_DEADLINE_S} s"
    lines = done.stdout.strip().splitlines() or ["no output"]
    return f"exit code {done.returncode}; {lines[-1]}"


def main() -> int:
    """Check small cases, short and long rows; the program that memcheck runs."""
    found = correctness(SMALL_LENGTHS, ks=(8, 512))
    found |= {
        f"{name} (long)": value for name, value in correctness([140000, 8193, 0], ks=(64,)).items()
    }
    ok = is_green({name.removesuffix(" (long)"): value for name, value in found.items()})
    torch.cuda.synchronize()
    print(found, "ok" if ok else "WRONG", flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
