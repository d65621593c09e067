"""The way to a host: its jump hosts, in the order in which OpenSSH visits them, and itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fleetctl.errors import SshConfigRefused
from fleetctl.host.endpoint import Endpoint
from fleetctl.host.ssh_config import Destination, Resolved, parse_destination, resolve

HOPS_LIMIT = 16


def route_to(endpoint: Endpoint) -> tuple[Resolved, ...]:
    """Return the hosts to log in to, first hop first, the endpoint itself last.

    Raises:
        SshConfigRefused: the configuration is wrong or loops.
    """
    config = endpoint.ssh_config
    target = resolve(Destination(endpoint.address, endpoint.user, endpoint.port), config=config)
    if endpoint.proxy_jump is not None:
        jumps = tuple(parse_destination(text) for text in endpoint.proxy_jump)
        # Said in the inventory, hops win over whatever the configuration proxies through.
        beyond = tuple(word for word in target.beyond_paramiko if word != "ProxyCommand")
        target = replace(target, proxy_jump=jumps, beyond_paramiko=beyond)
    return (*_hops(target, lambda hop: resolve(hop, config=config), HOPS_LIMIT), target)


def refuse_beyond_paramiko(route: tuple[Resolved, ...]) -> tuple[Resolved, ...]:
    """Return the route, or raise SshConfigRefused where only OpenSSH could follow it."""
    for host in route:
        if host.beyond_paramiko:
            raise SshConfigRefused(
                f"cannot reach {host.alias} as ssh_config asks for",
                why=f"it sets {', '.join(host.beyond_paramiko)}, which only OpenSSH can honour",
                next_step='use `transport = "openssh"` in the inventory, or unset it for this host',
            )
    return route


def _hops(
    host: Resolved, resolve_hop: Callable[[Destination], Resolved], left: int
) -> tuple[Resolved, ...]:
    """Return the hops before `host`.

    OpenSSH starts one `ssh` for the last hop and tells it to jump over those before; only the
    first one is reached as its own configuration says, so only that one may bring more hops.
    """
    if not host.proxy_jump:
        return ()
    if left == 0:
        raise SshConfigRefused(
            f"the jump hosts of {host.alias} never end",
            why=f"more than {HOPS_LIMIT} hops: some host jumps over itself",
            next_step="give the jump host `ProxyJump none` in ssh_config",
        )
    hops = tuple(resolve_hop(hop) for hop in host.proxy_jump)
    return (*_hops(hops[0], resolve_hop, left - 1), *hops)
