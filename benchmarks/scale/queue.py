"""What the queue costs its database: per idle worker, per cell, and per look at a campaign."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg

from fleetctl.clock import SystemClock
from fleetctl.queue.address import Address, parse_address
from fleetctl.queue.opening import joined
from fleetctl.store.campaign import CellResult, CellRun

_BLOCK = "gpu=h200"
_FACTS = {
    "line": "0/40",
    "counts": {"done": 40},
    "processes": [{"FLAG": "1"}] * 8,
    "pad": "x" * 1500,
}
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Row:
    """One measurement, as it is printed."""

    what: str
    value: float
    unit: str


def measure(url: str, *, cells: int, workers: int, idle_s: float = 8.0) -> Iterator[Row]:
    """Yield what a queue of so many cells and workers costs on this machine."""
    address = parse_address(url)
    yield from _idle(address, idle_s)
    yield from _cells(address, cells)
    yield from _together(address, cells // 4, workers)


def _idle(address: Address, idle_s: float) -> Iterator[Row]:
    with joined(address, "idle", SystemClock()):
        time.sleep(2)
        before, began_s, cpu_s = _transactions(address), time.monotonic(), time.process_time()
        time.sleep(idle_s)
        after, took_s = _transactions(address), time.monotonic() - began_s
        yield Row("idle worker: connections", _connections(address), "")
        yield Row("idle worker: transactions", (after - before) / took_s, "/s")
        yield Row("idle worker: CPU", 100 * (time.process_time() - cpu_s) / took_s, "% of a core")
        yield Row("idle worker: memory", _resident_bytes() / 2**20, "MiB")


def _cells(address: Address, cells: int) -> Iterator[Row]:
    with joined(address, "alone", SystemClock(), poll_s=0.01) as here:
        queue = here.campaign("bench")
        began_s = time.monotonic()
        queue.put(_run(number) for number in range(cells))
        yield Row(f"put {cells} cells", cells / (time.monotonic() - began_s), "cells/s")
        look_s = _mean_s(queue._read_state, 5)  # noqa: SLF001 - past what is remembered
        yield Row(f"look at {cells} cells", 1000 * look_s, "ms")
        before, taken_s, done_s, count = _transactions(address), 0.0, 0.0, 50
        for _ in range(count):
            t0_s = time.monotonic()
            run = queue.take("s", block=_BLOCK, worker="w")
            t1_s = time.monotonic()
            assert run is not None
            queue.done(run, _result(run))
            taken_s += t1_s - t0_s
            done_s += time.monotonic() - t1_s
        spent = _transactions(address) - before
        yield Row(f"take, {cells} waiting (engine polls every 10 ms)", 1000 * taken_s / count, "ms")
        yield Row("done", 1000 * done_s / count, "ms")
        yield Row("transactions a cell, polls included", spent / count, "")
        small_s = _mean_s(lambda: queue.quarantine("nowhere", "bench"), 200)
        yield Row("a small transaction, committed to disk", 1000 * small_s, "ms")
        yield Row("choose the next cell, in the database", _choose_ms(address), "ms")


def _together(address: Address, cells: int, workers: int) -> Iterator[Row]:
    context = multiprocessing.get_context("spawn")
    with joined(address, "controller", SystemClock()) as here:
        here.campaign("together").put(_run(number) for number in range(cells))
        go = context.Event()
        crew = [
            context.Process(target=_work, args=(str(address), f"w{n}", go)) for n in range(workers)
        ]
        for process in crew:
            process.start()
        time.sleep(3 + workers)
        began_s = time.monotonic()
        go.set()
        for process in crew:
            process.join()
        took_s = time.monotonic() - began_s
        counted = len(here.campaign("together").results())
        yield Row(f"{workers} workers measure nothing {counted} times", counted / took_s, "cells/s")


def _work(url: str, name: str, go: object) -> None:
    with joined(parse_address(url), name, SystemClock(), poll_s=0.02) as here:
        queue = here.campaign("together")
        go.wait()  # type: ignore[attr-defined]
        while (run := queue.take(name, block=_BLOCK, worker=name)) is not None:
            queue.done(run, _result(run))


def _run(number: int) -> CellRun:
    digest = f"{number:064x}"
    return CellRun(f"{digest[-16:]}.0", f"cell={number}", "a", digest, 0, _BLOCK, number)


def _result(run: CellRun) -> CellResult:
    return CellResult(run.id, run.digest, "s", "boot", "trials/1", _FACTS)


def _mean_s(work: object, times: int) -> float:
    began_s = time.monotonic()
    for _ in range(times):
        work()  # type: ignore[operator]
    return (time.monotonic() - began_s) / times


def _ask(address: Address, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(str(address), autocommit=True) as connection:
        return connection.execute(statement).fetchall()


def _transactions(address: Address) -> int:
    time.sleep(1.1)  # the server's counters lag behind by up to a second
    ((count,),) = _ask(
        address,
        "SELECT xact_commit + xact_rollback FROM pg_stat_database"
        " WHERE datname = current_database()",
    )
    return int(str(count))


def _connections(address: Address) -> int:
    statement = "SELECT count(*) - 1 FROM pg_stat_activity WHERE datname = current_database()"
    return int(str(_ask(address, statement)[0][0]))


def _choose_ms(address: Address) -> float:
    from fleetctl.queue import statements as sql

    names = {"campaign": "bench", "block": _BLOCK, "site": "s", "mine": "me", "prefers": ""}
    with psycopg.connect(str(address)) as connection:
        plan = connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.CHOOSE}", names).fetchone()
        connection.rollback()
    assert plan is not None
    return float(plan[0][0]["Execution Time"])


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
