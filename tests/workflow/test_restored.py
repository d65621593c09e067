"""A host is compared with as found once its service has had the time that it takes to start."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import ExitCode, NotRestored
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.restored import prove_restored
from fleetctl.workflow.stopping import Stop, StoppableClock

UP = {"ActiveState": "active", "SubState": "running"}


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def now_s(self) -> float:
        return self.now

    def monotonic_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Talk:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, _host: str, line: str) -> None:
        self.lines.append(line)


def prove(state: str, *, for_s: float) -> tuple[Clock, Talk]:
    """Prove a host whose service is in a state for so long, and then up."""
    clock, talk, stop = Clock(), Talk(), Stop()

    def observe(_query):
        active, _, sub = state.partition("/")
        is_up = clock.now >= for_s
        properties = UP if is_up else {"ActiveState": active, "SubState": sub}
        return SimpleNamespace(units=[SimpleNamespace(unit="u", properties=properties)], paths=())

    host = SimpleNamespace(unit="u")
    reached = SimpleNamespace(name="a", host=host, agent=SimpleNamespace(observe=observe))
    found = SimpleNamespace(unit=SimpleNamespace(unit="u", properties=UP))
    edges = Edges(
        connect=None,
        agent=None,
        clock=StoppableClock(clock, stop),
        stop=stop,
        talk=talk,
        holder="ann@desk",
        runs=None,
        salt=None,
    )
    try:
        prove_restored(edges, SimpleNamespace(reached=reached, touched={}, view=found))
    finally:
        edges.talk.lines.append(f"after {clock.now:g} s")
    return clock, talk


@pytest.mark.parametrize("step", ["start", "start-pre", "start-post"])
def test_a_service_that_loads_for_minutes_before_it_is_up_is_waited_for(step):
    _, talk = prove(f"activating/{step}", for_s=900)

    assert talk.lines[0] == f"a: u is on its way up: {step}"
    assert talk.lines[-2].endswith("and the unit are as found")


@pytest.mark.parametrize(
    ("state", "for_s"),
    [("activating/auto-restart", 90), ("inactive/dead", 90), ("activating/start", 2000)],
)
def test_a_service_that_does_not_come_up_is_told_after_a_bounded_time(state, for_s):
    with pytest.raises(NotRestored, match="not as it was found") as failed:
        prove(state, for_s=for_s)

    assert failed.value.exit_code is ExitCode.FAILED_NOT_RESTORED
    assert "u: ActiveState was active" in failed.value.why


def test_a_service_that_has_failed_is_told_at_once():
    with pytest.raises(NotRestored):
        prove("failed/failed", for_s=0.1)
