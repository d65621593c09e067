"""Run faults over sites, several at a time, and sum them up."""

from __future__ import annotations

import queue
import random
import statistics
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.faults.fault import Attempt, Fault, Kind, now_s
from benchmarks.faults.killing import NotReached
from benchmarks.faults.site import Site
from fleetctl.errors import FleetError
from fleetctl.transaction.failure import StepFailed

TOO_LATE = "the lease expired while the change was being applied"


@dataclass(frozen=True)
class Order:
    """A fault to inject.

    Attributes:
        kind: row of the table.
        which: tells it from others of its kind.
        inject: does it.
        seed: of its dice.
    """

    kind: str
    which: str
    inject: Kind
    seed: int

    @property
    def key(self) -> str:
        """Return what tells it from every other fault of the campaign."""
        return f"{self.kind}: {self.which}"


def run(
    orders: Iterable[Order], sites: Sequence[Site], report: Callable[[str, Fault], None]
) -> list[Fault]:
    """Inject every fault, each on the next site that is free; a lost site takes no more."""
    waiting: queue.SimpleQueue[Order] = queue.SimpleQueue()
    for order in orders:
        waiting.put(order)
    faults: list[Fault] = []
    lock = threading.Lock()

    def work(site: Site) -> None:
        while True:
            try:
                order = waiting.get_nowait()
            except queue.Empty:
                return
            fault = inject(order, site)
            if fault is None:
                continue
            with lock:
                faults.append(fault)
                report(order.key, fault)
            if fault.is_lost:
                return

    threads = [threading.Thread(target=work, args=(site,)) for site in sites]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return faults


def inject(order: Order, site: Site) -> Fault | None:
    """Inject one fault; None when the run took another course and nothing was injected.

    A failure of the harness counts as a host that is not back.
    """
    try:
        attempt = Attempt(order.kind, site, site.look(), random.Random(order.seed))
        return _injected(order, attempt)
    except (FleetError, RuntimeError, OSError, AssertionError) as error:
        return _harness_failed(order, site, f"{type(error).__name__}: {error}")


def _injected(order: Order, attempt: Attempt) -> Fault | None:
    site = attempt.site
    try:
        return order.inject(attempt)
    except NotReached:
        for held in site.agent().status().leases:
            site.agent().release(held.lease.id)
        return None
    except StepFailed as error:
        if TOO_LATE not in str(error):
            raise
        # a machine too busy for so short a lease: the host must be back, but no fault was injected
        _, wrong = site.wait_restored(attempt.before, since_s=now_s())
        return _harness_failed(order, site, *wrong) if wrong else None


def _harness_failed(order: Order, site: Site, *why: str) -> Fault:
    return Fault(order.kind, "harness", site.name, None, 0.0, why)


def table(faults: Sequence[Fault]) -> str:
    """Return a Markdown table: a row for each kind, and the total."""
    kinds = list(dict.fromkeys(fault.kind for fault in faults))
    rows = [_row(kind, [f for f in faults if f.kind == kind]) for kind in kinds]
    rows.append(_row("**all**", faults))
    head = "| fault | injected | hosts restored | lost | late | median s | max s |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows])


def _row(kind: str, faults: Sequence[Fault]) -> str:
    seconds = [fault.seconds for fault in faults if fault.seconds is not None]
    lost = sum(fault.is_lost for fault in faults)
    late = sum(fault.is_late for fault in faults)
    middle = f"{statistics.median(seconds):.1f}" if seconds else "-"
    most = f"{max(seconds):.1f}" if seconds else "-"
    count = len(faults)
    return f"| {kind} | {count} | {count - lost} | {lost} | {late} | {middle} | {most} |"
