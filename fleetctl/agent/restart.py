"""A restart that is proven: a clean stop, then a start that stays.

`systemctl restart` says little: with Type=simple a missing binary "starts", a crash loop is
"active" half of the time, and children of the old service may still hold its ports.
"""

from __future__ import annotations

import os
import signal
from typing import Callable, Mapping, Sequence

from fleetctl.agent import dependents, systemd
from fleetctl.agent.gpu import memory_used_mib
from fleetctl.agent.systemd import Systemctl
from fleetctl.clock import Clock
from fleetctl.transaction.outcome import ProvenRestart
from fleetctl.transaction.step import RestartUnit

POLL_S = 0.05
SOAK_POLL_S = 0.25
START_DEADLINE_S = 20.0
LOG_LINES = 20
RESTARTING = ("auto-restart", "auto-restart-queued")
KILL_DEADLINE_S = 10.0


class RestartFailed(Exception):
    """A unit did not stop, or did not start and stay up.

    Attributes:
        log_lines: the last lines it wrote.
    """

    def __init__(self, why: str, log_lines: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.log_lines = log_lines


class Restarter:
    """Stops and starts units; `checkpoint` is called while waiting and may raise."""

    def __init__(self, systemctl: Systemctl, clock: Clock, checkpoint: Callable[[], None]) -> None:
        self._systemctl = systemctl
        self._clock = clock
        self._checkpoint = checkpoint

    def restart(self, step: RestartUnit, *, kill: bool = False) -> ProvenRestart:
        """Stop a unit cleanly, start it, and see it run for `soak_s` without a restart.

        Args:
            step: the unit and its limits.
            kill: processes that outlive the stop deadline are killed rather than reported.

        Raises:
            RestartFailed: with the unit's last log lines.
        """
        begin_s = self._clock.monotonic_s()
        before = systemd.invocation(self._systemctl.show(step.unit))
        self.stop(step, kill=kill)
        if step.gpu_idle_mib is not None and not kill:
            self._wait_for_gpus(step, step.gpu_idle_mib)
        properties = self._start(step, before, replace=kill)
        return ProvenRestart(
            unit=step.unit,
            invocation_before=before,
            invocation=systemd.invocation(properties),
            main_pid=systemd.main_pid(properties),
            seconds=self._clock.monotonic_s() - begin_s,
        )

    def start_dependents(self, unit: str, names: Sequence[str]) -> None:
        """Start the units that a stop of this one has taken along.

        Raises:
            RestartFailed: one of them does not come up.
        """
        down = dependents.start_again(self._systemctl, self._clock, names)
        if down:
            raise self._failed(
                down[0], f"{' and '.join(down)} ran before {unit} was stopped, and came up no more"
            )

    def clear_failure(self, unit: str) -> None:
        """Let a unit that has ended be inactive, however it ended."""
        self._systemctl.run("reset-failed", "--", unit)

    def stop(self, step: RestartUnit, *, kill: bool = False) -> None:
        """Stop a unit and wait until no process of it is left.

        Raises:
            RestartFailed: it was refused, or something is left after `stop_deadline_s`.
        """
        properties = self._systemctl.show(step.unit)
        group, pids = properties.get("ControlGroup", ""), systemd.unit_pids(properties)
        marks = {pid: systemd.started_ticks(pid) for pid in pids}
        self._ask("stop", step, replace=kill)
        if self._is_gone_within(step, group, marks, step.stop_deadline_s):
            return
        left = self._left(group, marks)
        if kill:
            self._kill(step.unit, left)
            if self._is_gone_within(step, group, marks, KILL_DEADLINE_S):
                return
        names = ", ".join(str(pid) for pid in left) or "none, but it is still deactivating"
        raise self._failed(
            step.unit, f"it did not stop within {step.stop_deadline_s:g} s; processes left: {names}"
        )

    def _wait_for_gpus(self, step: RestartUnit, idle_mib: int) -> None:
        """Wait until the GPUs are as empty as they have to be: an orphan would hold memory."""
        deadline_s = self._clock.monotonic_s() + step.stop_deadline_s
        while used_mib := [mib for mib in memory_used_mib() if mib > idle_mib]:
            if self._clock.monotonic_s() > deadline_s:
                raise self._failed(
                    step.unit,
                    f"it has ended, yet GPU memory did not fall to {idle_mib} MiB within "
                    f"{step.stop_deadline_s:g} s: {max(used_mib)} MiB are in use",
                )
            self._checkpoint()
            self._clock.sleep(SOAK_POLL_S)

    def start_unproven(self, step: RestartUnit) -> None:
        """Stop a unit and start it without watching: it was in a crash loop when it was found."""
        self.stop(step, kill=True)
        self._ask("start", step, replace=True)

    def _ask(self, verb: str, step: RestartUnit, *, replace: bool) -> None:
        """Queue a job; a conflicting one is an error, or replaced where the host must go back."""
        mode = "replace" if replace else "fail"
        words = (verb, "--no-block", f"--job-mode={mode}", "--no-ask-password", "--", step.unit)
        said = self._systemctl.run(*words, deadline_s=step.stop_deadline_s + START_DEADLINE_S)
        if said.exit_code != 0:
            why = said.errors or said.output or f"exit code {said.exit_code}"
            raise self._failed(step.unit, f"systemctl {verb}: {why}")

    def _is_gone_within(
        self, step: RestartUnit, group: str, marks: Mapping[int, int], limit_s: float
    ) -> bool:
        deadline_s = self._clock.monotonic_s() + limit_s
        while True:
            state = self._systemctl.show(step.unit).get("ActiveState", "")
            if state in {"inactive", "failed", "unknown", ""} and not self._left(group, marks):
                return True
            if self._clock.monotonic_s() > deadline_s:
                return False
            self._checkpoint()
            self._clock.sleep(POLL_S)

    def _left(self, group: str, marks: Mapping[int, int]) -> list[int]:
        same = [pid for pid, ticks in marks.items() if systemd.started_ticks(pid) == ticks]
        alive = {pid for pid in same if systemd.is_alive(pid)}
        if group and group != "/":
            alive.update(systemd.group_pids(group))
        return sorted(alive)

    def _kill(self, unit: str, left: list[int]) -> None:
        self._systemctl.run("kill", "--signal=SIGKILL", "--", unit)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # noqa: PERF203 - each may be gone already
                continue

    def _start(self, step: RestartUnit, before: str, *, replace: bool) -> dict[str, str]:
        self._systemctl.run("reset-failed", "--", step.unit)  # our restarts are no crash loop
        self._ask("start", step, replace=replace)
        properties = self._wait_until_up(step, before)
        first = systemd.invocation(properties), systemd.restarts(properties)
        deadline_s = self._clock.monotonic_s() + step.soak_s
        while self._clock.monotonic_s() < deadline_s:
            self._checkpoint()
            self._clock.sleep(min(SOAK_POLL_S, step.soak_s / 4))
            properties = self._systemctl.show(step.unit)
            self._check_up(step.unit, properties)
            if (systemd.invocation(properties), systemd.restarts(properties)) != first:
                raise self._failed(step.unit, "it restarted by itself while it was watched")
        return properties

    def _wait_until_up(self, step: RestartUnit, before: str) -> dict[str, str]:
        deadline_s = self._clock.monotonic_s() + START_DEADLINE_S
        while True:
            properties = self._systemctl.show(step.unit)
            current = systemd.invocation(properties)
            if current and current != before:
                self._check_up(step.unit, properties)
                return properties
            if properties.get("ActiveState") == "failed":
                self._check_up(step.unit, properties)
            if self._clock.monotonic_s() > deadline_s:
                raise self._failed(step.unit, f"it did not start within {START_DEADLINE_S:g} s")
            self._checkpoint()
            self._clock.sleep(POLL_S)

    def _check_up(self, unit: str, properties: Mapping[str, str]) -> None:
        """Refuse what only looks like running."""
        up = properties.get("ActiveState") in systemd.ON_ITS_WAY
        if up and properties.get("SubState") not in RESTARTING:
            return
        raise self._failed(unit, _why_down(properties))

    def _failed(self, unit: str, why: str) -> RestartFailed:
        properties = self._systemctl.show(unit)
        return RestartFailed(why, self._systemctl.log_lines(unit, properties, LOG_LINES))


def _why_down(properties: Mapping[str, str]) -> str:
    state = f"{properties.get('ActiveState')}/{properties.get('SubState')}"
    status = properties.get("ExecMainStatus", "")
    result = properties.get("Result", "")
    if status == "203":
        return f"its program is missing or cannot be executed (203/EXEC; {state})"
    told = f"result {result}, exit status {status}" if result or status else "it says no more"
    return f"it is {state} after the start: {told}"
