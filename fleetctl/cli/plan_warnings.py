"""What a plan has to say of a comparison before it is made: arms alike, and "as found" changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fleetctl.transaction.journal import State

if TYPE_CHECKING:  # these bring SSH with them, and --help has to stay quick
    from fleetctl.transaction.snapshot import Status
    from fleetctl.workflow.edges import Reached
    from fleetctl.workflow.prepare import HostPlan, SitePlan

_AT_ONCE = 16


def warnings_of(plans: Iterable[SitePlan], hosts: Iterable[Reached]) -> list[str]:
    """Return every warning, in the order of the hosts; each host is asked once what it holds."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        held = {host.name: pool.submit(host.agent.status) for host in hosts}
    kept = kept_changes({name: answer.result() for name, answer in held.items()})
    return [*arms_alike(host for plan in plans for host in plan.hosts), *kept]


def arms_alike(hosts: Iterable[HostPlan]) -> Iterator[str]:
    """Yield on which hosts all arms would run the same bytes, so that nothing is compared."""
    names = [host.reached.name for host in hosts if _is_alike(host)]
    if names:
        yield (
            f"both arms run the same files and flags on {', '.join(names)}: a run would compare"
            " nothing, and count as A/A"
        )


def _is_alike(host: HostPlan) -> bool:
    first, *others = host.wanted.values()
    return bool(others) and all(other == first for other in others)


_LEFT = {State.COMMITTED.value: "the kept change", State.CONFLICT.value: "a change in conflict"}


def kept_changes(held: Mapping[str, Status]) -> Iterator[str]:
    """Yield what earlier runs left on hosts: it is part of "as found"."""
    for host, status in held.items():
        left = [(t.run_id, _LEFT[t.state]) for t in status.transactions if t.state in _LEFT]
        for run, what in dict.fromkeys(left):
            yield (
                f"{host} as found holds {what} of run {run};"
                f" `fleetctl rollback {run} --host {host}` takes it back"
            )
