"""Let a change stay on every host of a site, or on none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from fleetctl.errors import FleetError, HostError
from fleetctl.host.agent_client import Agent
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.lease_keeper import LeaseKeeper
from fleetctl.workflow.reach import reach


def keep_all(edges: Edges, held: Sequence[tuple[Reached, LeaseKeeper]]) -> None:
    """Commit on each host over a new login of its own; all logins stand before the first commit.

    A failure takes back what was committed: leaving the keepers' blocks restores every host.

    Raises:
        ApplyFailed: a host's dead-man was first.
        HostError: a host could not be reached, or its answer was lost twice.
        LeaseHeld: a lease was lost.
    """
    with ExitStack() as stack:
        ways = [_fresh(edges, stack, host) for host, _ in held]
        for _, keeper in held:
            keeper.check()
        try:
            for way, (_, keeper) in zip(ways, held, strict=True):
                _commit(keeper, way)
        except FleetError as error:
            for _, keeper in held:
                keeper.take_back()
            if len(held) > 1:
                error.why += f"{'; ' if error.why else ''}so no host of the site keeps the change"
            raise


def _fresh(edges: Edges, stack: ExitStack, host: Reached) -> Agent:
    fresh = reach(edges, host.name, host.host)
    stack.callback(fresh.transport.close)
    return fresh.agent


def _commit(keeper: LeaseKeeper, agent: Agent) -> None:
    try:
        keeper.commit(agent)
    except HostError:
        # a commit may be repeated: if only the answer was lost, the host says yes once more
        keeper.commit(agent)
