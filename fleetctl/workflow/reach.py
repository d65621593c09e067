"""Connect to every host of a target, or to none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from fleetctl.host.lasting import LastingTransport
from fleetctl.spec.inventory import Host, Inventory
from fleetctl.workflow.edges import Edges, Reached

_MAX_PARALLEL = 16


@contextlib.contextmanager
def reached(edges: Edges, inventory: Inventory, target: str) -> Iterator[tuple[Reached, ...]]:
    """Yield connections to all hosts of a target; they are closed afterwards.

    Raises:
        InputError: nothing has that name.
        HostError: a host can't be reached; the first in inventory order is reported.
    """
    names = inventory.select(target)
    with contextlib.ExitStack() as stack:
        with ThreadPoolExecutor(_MAX_PARALLEL) as pool:
            futures = [pool.submit(reach, edges, name, inventory.hosts[name]) for name in names]
        for future in futures:
            if future.exception() is None:
                stack.callback(future.result().transport.close)
        yield tuple(future.result() for future in futures)


def reach(edges: Edges, name: str, host: Host) -> Reached:
    """Return a connection to one host; should it be lost, the next question makes a new one."""
    transport = LastingTransport(lambda: edges.connect(name, host))
    return Reached(name, host, transport, edges.agent(transport, host))
