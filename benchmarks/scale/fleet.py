"""A fleet simulated: hosts take cells for hours, and the database serves them one after another.

Every host: take a cell, measure it (restart, proof, trial, restore), send its transcripts, say
done; its worker polls and beats meanwhile. The database is a queue with a few servers (its cores).
Answers: how busy the database is, how long a host waits for a cell, and how much is moved.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CELL_S = 600.0  # restart of a large model, proof, 40 sessions, restore
HOURS = 4.0
HOSTS_PER_WORKER = 50
CONNECTIONS_PER_WORKER = 5
DATABASE_CORES = 4
SESSIONS_PER_HOST = 100
TRANSCRIPT_BYTES_PER_SESSION = 50_000


@dataclass(frozen=True)
class Costs:
    """What a request costs the database, in seconds of one core.

    Choosing, looking and polls are what `python -m benchmarks.scale queue` measured on two busy
    cores, so rather too much; a transaction and a byte are assumptions.

    Attributes:
        choose_per_cell_s: choosing sorts what waits: seconds per waiting cell.
        look_per_cell_s: reading a campaign's state: seconds per cell.
        transaction_s: any small transaction.
        byte_s: writing a byte of transcripts.
        idle_per_s: small transactions of a worker's polls, a second.
    """

    choose_per_cell_s: float = 1.4e-5
    look_per_cell_s: float = 3.5e-5
    transaction_s: float = 0.001
    byte_s: float = 1.2e-8
    idle_per_s: float = 21.0


@dataclass(frozen=True)
class Found:
    """What a simulation found.

    Attributes:
        utilisation: share of the database's cores in use.
        wait_p99_s: between asking for a cell and having it.
        lost_share: share of the hosts' time spent on waiting for the database.
    """

    hosts: int
    workers: int
    connections: int
    cells: int
    utilisation: float
    wait_p99_s: float
    lost_share: float
    gigabytes_an_hour: float


def simulate(hosts: int, costs: Costs | None = None, *, seed: int = 1) -> Found:
    """Run a fleet for four hours on one campaign with ten cells a host."""
    costs = costs or Costs()
    dice = random.Random(seed)
    workers = -(-hosts // HOSTS_PER_WORKER)
    cells = 10 * hosts
    left = cells
    background = workers * costs.idle_per_s * costs.transaction_s
    # a worker reads the state at most for a tenth of its time, and at most once a second
    look_s = costs.look_per_cell_s * cells
    background += workers * min(1.0, 1 / (11 * look_s) if look_s else 1.0) * look_s
    cores = [0.0] * DATABASE_CORES
    waits: list[float] = []
    busy_s = moved_bytes = 0.0
    asks = [(dice.uniform(0, CELL_S), host) for host in range(hosts)]
    heapq.heapify(asks)
    end_s = HOURS * 3600
    slowdown = 1 / max(0.02, 1 - background / DATABASE_CORES)
    while asks:
        now_s, host = heapq.heappop(asks)
        if now_s > end_s:
            continue
        size_bytes = SESSIONS_PER_HOST * TRANSCRIPT_BYTES_PER_SESSION
        work_s = 8 * costs.transaction_s + costs.choose_per_cell_s * left
        work_s += costs.byte_s * size_bytes
        core = min(range(DATABASE_CORES), key=cores.__getitem__)
        begun_s = max(now_s, cores[core])
        cores[core] = begun_s + work_s * slowdown
        busy_s += work_s
        waits.append(cores[core] - now_s)
        moved_bytes += size_bytes
        left = left - 1 if left > 1 else cells
        heapq.heappush(asks, (cores[core] + dice.lognormvariate(0, 0.3) * CELL_S, host))
    waits.sort()
    used = busy_s / end_s + background
    return Found(
        hosts=hosts,
        workers=workers,
        connections=CONNECTIONS_PER_WORKER * workers,
        cells=len(waits),
        utilisation=used / DATABASE_CORES,
        wait_p99_s=waits[int(0.99 * (len(waits) - 1))],
        lost_share=sum(waits) / (hosts * end_s),
        gigabytes_an_hour=moved_bytes / 1e9 / HOURS,
    )


def table(found: Iterable[Found]) -> Iterator[str]:
    """Yield the findings as lines."""
    yield (
        "hosts  workers  connections  cells in 4 h  database busy  wait p99  "
        "hosts' time lost  transcripts"
    )
    for one in found:
        yield (
            f"{one.hosts:5d} {one.workers:8d} {one.connections:12d} {one.cells:13d}"
            f" {one.utilisation:14.1%} {one.wait_p99_s:8.2f}s {one.lost_share:16.3%}"
            f" {one.gigabytes_an_hour:8.1f} GB/h"
        )
