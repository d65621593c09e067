"""A host for the run of one site: it gives its lease and takes it back, and may not answer."""

from pathlib import Path
from types import SimpleNamespace

from fleetctl.clock import SystemClock
from fleetctl.errors import ConnectionLost
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.site_run import SiteRun
from fleetctl.workflow.stopping import Stop, StoppableClock

LOST = ConnectionLost("a went away", why="reset by peer", next_step="look at a")


class Agent:
    """A host that gives its lease and takes it back, and may then be unreachable."""

    def __init__(self, *, answers: bool = True) -> None:
        self.said: list[str] = []
        self.renew = lambda _lease, *, length_s: None
        self._answers = answers

    def acquire(self, request) -> None:
        self.said.append(f"acquire {request.unit}")

    def release(self, _lease) -> None:
        self.said.append("release")

    def status(self):
        return SimpleNamespace(leases=(), transactions=())

    def unlocked(self, _lease) -> None:
        return None

    def observe(self, _query):
        if not self._answers:
            raise LOST
        return SimpleNamespace(units=[SimpleNamespace(properties={}, unit="u")], paths=())


class Talk:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def site_plan(agent):
    host = SimpleNamespace(unit="u")
    transport = SimpleNamespace(times_lost=0)
    reached = SimpleNamespace(name="a", host=host, agent=agent, transport=transport)
    unit = SimpleNamespace(properties={}, unit="u")
    found = SimpleNamespace(
        reached=reached,
        touched={},
        plans={},
        wanted={},
        within=(),
        own_flags={},
        view=SimpleNamespace(unit=unit),
    )
    site = SimpleNamespace(name="a", machine="a", hosts=(reached,), entry=reached)
    return SimpleNamespace(site=site, arms={}, hosts=(found,))


def edges_at(runs: Path) -> Edges:
    stop = Stop()
    return Edges(
        connect=None,
        agent=None,
        clock=StoppableClock(SystemClock(), stop),
        stop=stop,
        talk=Talk(),
        holder="ann@desk",
        runs=runs,
        salt=None,
    )


def site_run(edges, folder, plan, **more):
    job = SimpleNamespace(kind="experiment", purpose="p", lease_s=60.0)
    return SiteRun(edges, folder, plan, (), job, **more)
