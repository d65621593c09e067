"""Wait until a site serves: every host's own service, then the whole site end to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fleetctl.host.transport import Transport
from fleetctl.serving.layers import LayerPlan, ReadyPlan
from fleetctl.serving.probe import TargetProbe
from fleetctl.serving.readiness import Readiness, wait_until_ready
from fleetctl.serving.target import Target
from fleetctl.spec.ready import Layer, Ready
from fleetctl.transaction.snapshot import UnitReport
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.site import Site, address_of

_WAY_DEADLINE_S = 10.0


@dataclass(frozen=True)
class HostUnit:
    """The unit of a host, looked at through its agent."""

    host: Reached

    def report(self) -> UnitReport:
        """Return how the unit fares now, with the last lines of this invocation."""
        return self.host.agent.unit(self.host.host.unit, log_lines=40)


def wait_ready(edges: Edges, site: Site, ready: Ready) -> tuple[Readiness, ...]:
    """Wait for each host's service in restart order, then for the router where there is one.

    Raises:
        NotReady: with the last layer passed and the unit's last log lines.
    """
    found = [_wait_host(edges, host, ready) for host in site.hosts]
    if site.entry.host.router_url is not None:
        found.append(_wait_router(edges, site, ready))
    return tuple(found)


def _wait_host(edges: Edges, host: Reached, ready: Ready) -> Readiness:
    topic = f"{host.name}: waiting"
    with probe_of(edges, host, host.host.service_url) as probe:
        done = wait_until_ready(
            _plan(host, ready),
            probe,
            edges.clock,
            watch=HostUnit(host),
            name=host.name,
            on_progress=lambda line: edges.talk.progress(topic, line),
        )
    edges.talk.say(f"{host.name}: ready after {done.after_s:.1f} s")
    return done


def _wait_router(edges: Edges, site: Site, ready: Ready) -> Readiness:
    entry = site.entry
    with probe_of(edges, entry, entry.host.router_url or "") as probe:
        return wait_until_ready(
            _plan(entry, ready),
            probe,
            edges.clock,
            name=f"the router of {site.name}",
            on_progress=lambda line: edges.talk.progress(f"{site.name}: router", line),
        )


@contextmanager
def probe_of(edges: Edges, host: Reached, url: str) -> Iterator[TargetProbe]:
    """Yield a probe of a URL on the host's side, through the SSH connection."""
    address, port = address_of(url)
    with host.transport.forward(port, address=address) as local:
        target = Target(f"http://{local[0]}:{local[1]}", host.host.model)
        yield TargetProbe(target, edges.clock, check_way=lambda: _check_way(host.transport))


def _check_way(transport: Transport) -> None:
    transport.check_alive(deadline_s=_WAY_DEADLINE_S)


def _plan(host: Reached, ready: Ready) -> ReadyPlan:
    return ReadyPlan(
        model=host.host.model,
        health_path=host.host.health_path,
        health_meaning=host.host.health_meaning,
        active=_layer(ready.active),
        port=_layer(ready.port),
        health=_layer(ready.health),
        completion=_layer(ready.completion),
        tool_call=_layer(ready.tool_call_layer or ready.completion) if ready.tool_call else None,
        concurrent=ready.concurrent,
        concurrent_layer=_layer(ready.concurrent_layer or ready.completion),
        soak_s=ready.soak,
        progress=ready.progress,
        restarts_before=None,
    )


def _layer(layer: Layer) -> LayerPlan:
    return LayerPlan(layer.deadline, layer.poll)
