"""Measure the indexer on a GPU: `python -m benchmarks.gpu.indexer`.

Writes indexer.json and indexer.md into `--out` (docs/results/gpu by default). Ends with 1, and
reports no speed, if a kernel is wrong on this device.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.gpu import check, measure, rivals, table
from benchmarks.gpu.measure import Call, Time
from payload.cache import layout
from payload.cache.layout import PAGE_TOKENS, KeyFormat
from payload.indexer import kernel, reference, select_bisect
from payload.indexer.kernel import LogitsTiling
from payload.indexer.kernel_case import fill
from payload.roofline import logits_work, select_work

HEADS, DIM = 64, 128
FORMATS = (KeyFormat.BF16, KeyFormat.FP8)


@dataclass(frozen=True)
class Sizes:
    """What is measured; the fields are batch sizes, context lengths and k."""

    batches: Sequence[int] = (1, 8, 32, 128)
    tokens: Sequence[int] = (4096, 16384, 65536, 131072, 262144, 1048576)
    batch: int = 32
    length: int = 131072
    ks: Sequence[int] = (512, 2048)
    rival_shapes: Sequence[tuple[int, int]] = ((1, 131072), (32, 4096), (32, 131072))


class Pool:
    """A filled pool of index keys, out of which problems of any shape are dealt."""

    def __init__(self, key_format: KeyFormat, tokens: int, *, device: str = "cuda") -> None:
        self.key_format = key_format
        self.pages = layout.allocate(-(-tokens // PAGE_TOKENS), DIM, key_format, device=device)
        generator = torch.Generator(device).manual_seed(1)
        fill(self.pages, generator)
        order = torch.randperm(self.pages.shape[0], generator=generator, device=device)
        self.order = order.int()

    def problems(self, batch: int, tokens: int) -> list[tuple[Tensor, ...]]:
        """Return inputs with pages of their own, enough of them to keep the cache cold."""
        row_pages = -(-tokens // PAGE_TOKENS)
        most = self.pages.shape[0] // (batch * row_pages)
        call_bytes = logits_work(batch, tokens, HEADS, DIM, self.key_format).hbm_bytes
        device = self.pages.device
        count = min(most, measure.sets_for(call_bytes))
        tables = self.order[: count * batch * row_pages].view(count, batch, row_pages)
        lengths = torch.full((batch,), tokens, dtype=torch.int32, device=device)
        q = torch.randn(batch, HEADS, DIM, device=device)
        weights = torch.randn(batch, HEADS, device=device)
        if self.key_format is KeyFormat.FP8:
            q, weights = reference.quantise_queries(q, weights)
        else:
            q = q.bfloat16()
        return [(q, weights, self.pages, table, lengths) for table in tables]


def logits_calls(
    pool: Pool, batch: int, tokens: int, tiling: LogitsTiling | None = None
) -> list[Call]:
    """Return calls of the logits kernel over cold inputs."""

    def call(inputs: tuple[Tensor, ...], out: Tensor) -> Call:
        return lambda: kernel.index_logits(*inputs, out=out, tiling=tiling)

    shape = (batch, tokens)
    return [
        call(inputs, torch.empty(shape, device=pool.pages.device))
        for inputs in pool.problems(batch, tokens)
    ]


def indexer_calls(pool: Pool, batch: int, tokens: int, k: int) -> list[Call]:
    """Return calls of logits and top-k together over cold inputs."""

    def call(inputs: tuple[Tensor, ...], logits: Tensor) -> Call:
        def run() -> None:
            kernel.index_logits(*inputs, out=logits)
            select_bisect.select_topk(logits, inputs[-1], k)

        return run

    return [
        call(inputs, torch.empty((batch, tokens), device=pool.pages.device))
        for inputs in pool.problems(batch, tokens)
    ]


def curve(pool: Pool, sizes: Sizes, copy_rate: float) -> list[dict[str, object]]:
    """Return the logits kernel's rate at every batch size and context length."""
    rows = []
    for batch in sizes.batches:
        for tokens in sizes.tokens:
            time = measure.time_calls(logits_calls(pool, batch, tokens))
            work = logits_work(batch, tokens, HEADS, DIM, pool.key_format)
            rate = work.hbm_bytes / time.median_s
            rows.append(
                {"format": pool.key_format.value, "batch": batch, "tokens": tokens}
                | asdict(time)
                | {"bytes_per_s": rate, "of_copy": rate / copy_rate}
            )
    return rows


def candidates() -> Iterator[LogitsTiling]:
    """Yield the tilings worth trying."""
    for block, warps in ((64, 4), (128, 4), (128, 8), (256, 8)):
        for stages in (2, 3, 4, 5, 7):
            for programs in (132 * 8, 132 * 32):
                yield LogitsTiling(block, stages, warps, programs)


def sweep(pool: Pool, sizes: Sizes, copy_rate: float) -> list[dict[str, object]]:
    """Return the rate of every tiling worth trying, fastest first."""
    work = logits_work(sizes.batch, sizes.length, HEADS, DIM, pool.key_format)
    rows: list[dict[str, object]] = []
    for tiling in candidates():
        calls = logits_calls(pool, sizes.batch, sizes.length, tiling)
        try:
            time = measure.time_calls(calls, replays=5)
        except Exception as exc:  # noqa: BLE001 - a tiling that does not fit is a result, too
            print(f"{tiling}: {type(exc).__name__}", file=sys.stderr)
            continue
        share = work.hbm_bytes / time.median_s / copy_rate
        rows.append(asdict(tiling) | {"median_s": time.median_s, "of_copy": share})
    return sorted(rows, key=lambda row: row["median_s"])


def deep_gemm_row(pool: Pool, batch: int, tokens: int, ours: Time) -> dict[str, object]:
    """Return the time of DeepGEMM's kernel over the same inputs, and how its scores differ."""
    problems = pool.problems(batch, tokens)
    out = torch.empty((batch, tokens), device=pool.pages.device)
    kernel.index_logits(*problems[0], out=out)
    gap = (rivals.deep_gemm(*problems[0])()[:, :tokens] - out).norm() / out.norm()
    time = measure.time_calls([rivals.deep_gemm(*inputs) for inputs in problems])
    ratio = time.median_s / ours.median_s
    return {"way": "DeepGEMM", "times_ours": ratio, "relative_difference": gap.item()} | asdict(
        time
    )


def logits_rivals(pool: Pool, sizes: Sizes) -> list[dict[str, object]]:
    """Return times of the other ways to compute logits, and ours beside them."""
    rows = []
    for batch, tokens in sizes.rival_shapes:
        ours = measure.time_calls(logits_calls(pool, batch, tokens))
        row = {"format": pool.key_format.value, "batch": batch, "tokens": tokens}
        rows.append(row | {"way": "this kernel", "times_ours": 1.0} | asdict(ours))
        if pool.key_format is KeyFormat.FP8 and rivals.has_deep_gemm():
            rows.append(row | deep_gemm_row(pool, batch, tokens, ours))
        ways = {"torch eager": rivals.eager}
        if (batch, tokens) == (sizes.batch, sizes.length):  # compiling takes long: once a format
            ways["torch.compile"] = rivals.compiled()
        for way, function in ways.items():
            problems = pool.problems(batch, tokens)[:4]
            try:
                time = measure.time_calls([_rival(function, inputs) for inputs in problems])
            except Exception as exc:  # noqa: BLE001 - a rival that fails is a result, not our failure
                rows.append(row | {"way": way, "failed": f"{type(exc).__name__}: {exc}"[:200]})
                continue
            rows.append(
                row | {"way": way, "times_ours": time.median_s / ours.median_s} | asdict(time)
            )
    return rows


def _rival(function: rivals.Logits, inputs: tuple[Tensor, ...]) -> Call:
    q, weights, pages, page_table, _ = inputs
    page_ids = page_table.long()
    return lambda: function(q, weights, pages, page_ids)


def topk_rows(sizes: Sizes, copy_rate: float, *, device: str = "cuda") -> list[dict[str, object]]:
    """Return times of our top-k and torch's, on scores that are in the cache and that are not."""
    batch, tokens = sizes.batch, sizes.length
    lengths = torch.full((batch,), tokens, dtype=torch.int32, device=device)
    rows: list[dict[str, object]] = []
    for k in sizes.ks:
        ways = {
            "bisect": lambda logits, k=k: select_bisect.select_topk(logits, lengths, k),
            "torch.topk": lambda logits, k=k: torch.topk(logits, k),
            "torch.topk unsorted": lambda logits, k=k: torch.topk(logits, k, sorted=False),
        }
        work = select_work(batch, tokens, k)
        for cache, count in (("cold", measure.sets_for(work.hbm_bytes)), ("hot", 1)):
            scores = [torch.randn(batch, tokens, device=device) for _ in range(count)]
            times: dict[str, Time] = {}
            for way, function in ways.items():
                calls = [lambda f=function, x=x: f(x) for x in scores]
                times[way] = measure.time_calls(calls)
                rows.append(
                    {"k": k, "batch": batch, "tokens": tokens, "cache": cache, "way": way}
                    | {"times_ours": times[way].median_s / times["bisect"].median_s}
                    | {"of_copy": work.hbm_bytes / times[way].median_s / copy_rate}
                    | asdict(times[way])
                )
    return rows


def topk_launches(sizes: Sizes, *, device: str = "cuda") -> list[dict[str, object]]:
    """Return the device time of each launch of our top-k and of torch's."""
    logits = torch.randn(sizes.batch, sizes.length, device=device)
    lengths = torch.full((sizes.batch,), sizes.length, dtype=torch.int32, device=device)
    rows: list[dict[str, object]] = []
    for k in sizes.ks:
        ways = {
            "bisect": lambda k=k: select_bisect.select_topk(logits, lengths, k),
            "torch.topk": lambda k=k: torch.topk(logits, k),
        }
        for way, call in ways.items():
            found = measure.kernel_times_s(call).items()
            rows += [{"k": k, "way": way, "kernel": name, "median_s": time} for name, time in found]
    return rows


def whole(pool: Pool, sizes: Sizes, copy_rate: float) -> list[dict[str, object]]:
    """Return the whole indexer, logits and top-k, as a fraction of its roofline."""
    rows = []
    for k in sizes.ks:
        time = measure.time_calls(indexer_calls(pool, sizes.batch, sizes.length, k))
        logits = logits_work(sizes.batch, sizes.length, HEADS, DIM, pool.key_format)
        work = logits + select_work(sizes.batch, sizes.length, k)
        limit = work.hbm_bytes / copy_rate
        rows.append(
            {"format": pool.key_format.value, "batch": sizes.batch, "tokens": sizes.length, "k": k}
            | {"limit_s": limit, "of_limit": limit / time.median_s}
            | asdict(time)
        )
    return rows


def measured(sizes: Sizes, *, is_sweep: bool) -> dict[str, object]:
    """Return every number, or only the correctness if that is red."""
    errors = check.correctness(check.FULL_LENGTHS)
    result: dict[str, object] = {"facts": measure.facts(), "correctness": errors}
    result |= {"is_green": check.is_green(errors), "has_deep_gemm": rivals.has_deep_gemm()}
    if not result["is_green"]:
        return result
    copies = measure.copy_bytes_per_s()
    copy_rate = max(copies.values())
    result |= {"copy_bytes_per_s": copies, "matmul_flops_per_s": measure.matmul_flops_per_s()}
    names = ("curve", "rivals", "whole", "sweep")
    parts: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    for key_format in FORMATS:
        most = max(sizes.batches) * max(sizes.tokens)
        pool = Pool(key_format, sizes.batch * sizes.length * 2 if is_sweep else most)
        if is_sweep:
            rows = sweep(pool, sizes, copy_rate)
            parts["sweep"] += [{"format": key_format.value} | row for row in rows]
        else:
            parts["curve"] += curve(pool, sizes, copy_rate)
            parts["rivals"] += logits_rivals(pool, sizes)
        parts["whole"] += whole(pool, sizes, copy_rate)
        del pool
    result |= parts
    result["topk"] = topk_rows(sizes, copy_rate)
    result["launches"] = topk_launches(sizes)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write both files, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/results/gpu"))
    parser.add_argument("--sweep", action="store_true", help="try tilings instead of the curve")
    parser.add_argument("--memcheck", action="store_true", help="also run compute-sanitizer")
    chosen = parser.parse_args(arguments)
    memcheck = check.memcheck() if chosen.memcheck else "not asked for"
    result = measured(Sizes(), is_sweep=chosen.sweep) | {"memcheck": memcheck}
    chosen.out.mkdir(parents=True, exist_ok=True)
    name = "sweep" if chosen.sweep else "indexer"
    (chosen.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    text = table.markdown(result)
    (chosen.out / f"{name}.md").write_text(text)
    print(text)
    return 0 if result["is_green"] else 1


if __name__ == "__main__":
    sys.exit(main())
