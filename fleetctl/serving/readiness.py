"""Waiting for a service, layer by layer, without being fooled or kept waiting.

unit active and not crash-looping → port open → health → a chat completion of the expected model
→ a tool call that parses → many at once. The unit is looked at along with every question: a dead
or looping one ends the wait in seconds. Three states are told apart: *unreachable* and
*unhealthy* are answers and use up the deadline; *unknown* (the way to the host is broken) is no
answer, has a deadline of its own, and never counts against the service.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from fleetctl.clock import Clock
from fleetctl.errors import HostError, NotReady
from fleetctl.serving.layers import Failed, Layer, Passed, ReadyPlan, service_layers
from fleetctl.serving.probe import HttpProbe
from fleetctl.transaction.snapshot import UnitReport

FIRST_PAUSE_S = 0.1
PAUSE_SHARE = 0.1  # of the time waited so far: what is up after 1 s is noticed in about 1.1 s
SHOWN_LOG_LINES = 12
SLOWEST_START_S = 2.0  # an inactive unit is given this long to become active


class UnitWatch(Protocol):
    """Looks at the unit that runs the service."""

    def report(self) -> UnitReport:
        """Return how the unit fares now, with the last lines of this invocation.

        Raises:
            HostError: the host could not be asked.
        """
        ...


@dataclass(frozen=True)
class LayerPassed:
    """A layer that was passed.

    Attributes:
        name: of the layer.
        after_s: since the wait began.
        note: what was seen.
    """

    name: str
    after_s: float
    note: str


@dataclass(frozen=True)
class Readiness:
    """A service that is ready, and how that was found.

    Attributes:
        layers: the layers passed, in order.
        after_s: how long it took.
        unit: the unit when it was ready; None where no unit was watched.
    """

    layers: tuple[LayerPassed, ...]
    after_s: float
    unit: UnitReport | None


class LayerNotReady(NotReady):
    """A layer was not passed.

    Attributes:
        passed: the layers that were.
        layer: the one that wasn't.
        state: `unreachable`, `unhealthy`, `unknown`, `dead` or `looping`.
        log_lines: the unit's last lines.
    """

    def __init__(
        self,
        what: str,
        *,
        why: str,
        next_step: str,
        passed: Sequence[LayerPassed],
        layer: str,
        state: str,
        log_lines: Sequence[str],
    ) -> None:
        super().__init__(what, why=why, next_step=next_step)
        self.passed = tuple(passed)
        self.layer = layer
        self.state = state
        self.log_lines = tuple(log_lines)


def wait_until_ready(
    plan: ReadyPlan,
    probe: HttpProbe,
    clock: Clock,
    *,
    watch: UnitWatch | None = None,
    name: str = "the service",
    on_progress: Callable[[str], None] = lambda line: None,
) -> Readiness:
    """Wait until every layer is passed.

    Args:
        plan: what ready means.
        probe: asks the service.
        clock: to wait with; its `sleep` may raise to interrupt the wait.
        watch: looks at the unit; None where there is none to look at.
        name: of the host or service, for messages.
        on_progress: hears what is being waited for, with numbers from the service's log.

    Raises:
        LayerNotReady: a layer's deadline passed, or the unit died or loops.
    """
    return _Wait(plan, probe, clock, watch, name, on_progress).run()


class _Wait:
    """One wait: what has been seen of the unit, and which layers are behind us."""

    def __init__(
        self,
        plan: ReadyPlan,
        probe: HttpProbe,
        clock: Clock,
        watch: UnitWatch | None,
        name: str,
        on_progress: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._probe = probe
        self._clock = clock
        self._watch = watch
        self._name = name
        self._on_progress = on_progress
        self._began_s = clock.monotonic_s()
        self._passed: list[LayerPassed] = []
        self._unit: UnitReport | None = None
        self._first_unit: UnitReport | None = None
        self._active_since_s: float | None = None
        self._layer = "unit"

    def run(self) -> Readiness:
        if self._watch is not None:
            self._pass(Layer("unit", self._plan.active, lambda probe: self._check_unit()))
        for layer in service_layers(self._plan):
            self._pass(layer)
        if self._watch is not None:
            self._pass(Layer("soak", self._plan.active, lambda probe: self._check_soak()))
        return Readiness(tuple(self._passed), self._waited_s(), self._unit)

    def _pass(self, layer: Layer) -> None:
        """Ask until the layer is passed or its patience is used up."""
        self._layer = layer.name
        patience = _Patience(layer.plan.deadline_s, self._clock.monotonic_s())
        while True:
            answer = self._look_at_unit() or layer.check(self._probe)
            if isinstance(answer, Passed):
                self._passed.append(LayerPassed(layer.name, self._waited_s(), answer.note))
                self._on_progress(f"{layer.name}: {answer.note}")
                return
            if patience.is_used_up(answer, self._clock.monotonic_s()):
                raise self._not_ready(answer.state, f"{answer.why} ({patience.spent()})")
            self._on_progress(self._progress(layer, answer))
            pause_s = max(FIRST_PAUSE_S, PAUSE_SHARE * self._waited_s())
            self._clock.sleep(min(layer.plan.poll_s, pause_s))

    def _look_at_unit(self) -> Failed | None:
        """Look at the unit; None when it lives, a failure when it could not be asked.

        Raises:
            LayerNotReady: it is dead or was restarted.
        """
        if self._watch is None:
            return None
        try:
            unit = self._watch.report()
        except HostError as error:
            return Failed("unknown", str(error))
        self._unit = unit
        self._first_unit = self._first_unit or unit
        fault = unit_fault(unit, self._first_unit, self._plan.restarts_before)
        if fault is None and unit.active_state in {"inactive", "deactivating"}:
            was_up = self._active_since_s is not None
            is_late = was_up or self._waited_s() > SLOWEST_START_S
            fault = ("dead", f"the unit is {unit.active_state}") if is_late else None
        if fault is not None:
            raise self._not_ready(*fault)
        if unit.active_state == "active" and self._active_since_s is None:
            self._active_since_s = self._clock.monotonic_s()
        return None

    def _check_unit(self) -> Passed | Failed:
        if self._unit is None or self._unit.active_state != "active":
            state = self._unit.active_state if self._unit else "unknown"
            return Failed("unhealthy", f"the unit is {state}")
        return Passed(f"active, main process {self._unit.main_pid}")

    def _check_soak(self) -> Passed | Failed:
        active_since_s = self._active_since_s
        up_s = self._clock.monotonic_s() - active_since_s if active_since_s is not None else 0.0
        if up_s < self._plan.soak_s:
            return Failed("unhealthy", f"active for {up_s:.1f} of {self._plan.soak_s:g} s")
        return Passed(f"active for {up_s:.1f} s without a restart")

    def _waited_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s

    def _progress(self, layer: Layer, answer: Failed) -> str:
        lines = self._unit.log_lines if self._unit else ()
        found = latest_progress(lines, self._plan.progress)
        shown = f"; {found}" if found else ""
        return f"{layer.name} {answer.state} after {self._waited_s():.0f} s: {answer.why}{shown}"

    def _not_ready(self, state: str, why: str) -> LayerNotReady:
        lines = self._unit.log_lines[-SHOWN_LOG_LINES:] if self._unit else ()
        last = self._passed[-1].name if self._passed else "none"
        log = "".join(f"\n       | {line}" for line in lines)
        return LayerNotReady(
            f"{self._name} did not become ready",
            why=f"{self._layer} is {state}: {why}; last layer passed: {last}{log}",
            next_step="read the unit's log above; a slow start needs a longer deadline in [ready]",
            passed=self._passed,
            layer=self._layer,
            state=state,
            log_lines=lines,
        )


class _Patience:
    """Time that answers may still use up; silence on the way there is counted apart."""

    def __init__(self, deadline_s: float, now_s: float) -> None:
        self._deadline_s = deadline_s
        self._last_s = now_s
        self._answered_s = 0.0
        self._unknown_s = 0.0

    def is_used_up(self, answer: Failed, now_s: float) -> bool:
        spent_s, self._last_s = now_s - self._last_s, now_s
        if answer.state == "unknown":
            self._unknown_s += spent_s
        else:
            self._answered_s += spent_s
        return max(self._answered_s, self._unknown_s) >= self._deadline_s

    def spent(self) -> str:
        apart = f", and nothing was known for {self._unknown_s:.0f} s" if self._unknown_s else ""
        return f"waited {self._answered_s:.0f} s{apart}"


def unit_fault(
    unit: UnitReport, first: UnitReport, restarts_before: int | None
) -> tuple[str, str] | None:
    """Return why a unit will not become ready by waiting: (`dead` or `looping`, reason)."""
    if unit.active_state == "failed":
        return "dead", f"the unit failed ({unit.result})"
    if unit.sub_state == "auto-restart":
        return "looping", f"it ended ({unit.result}) and systemd starts it again"
    before = first.restarts if restarts_before is None else restarts_before
    if unit.restarts is not None and before is not None and unit.restarts > before:
        return "looping", f"systemd has restarted it {unit.restarts - before} times"
    if unit.invocation and first.invocation and unit.invocation != first.invocation:
        return "looping", "it was started again while we waited"
    return None


def latest_progress(lines: Sequence[str], patterns: Sequence[str]) -> str:
    """Return the last log line's progress: the part that a pattern matched, or ""."""
    for line in reversed(lines):
        for pattern in patterns:
            match = re.search(pattern, line)
            if match:
                return match.group()
    return ""
