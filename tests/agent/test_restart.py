"""Jobs of systemd: somebody else's is never replaced by a change, only by the way back."""

from __future__ import annotations

import pytest

from fleetctl.agent.restart import Restarter, RestartFailed
from fleetctl.agent.systemd import Said
from fleetctl.clock import SystemClock
from fleetctl.transaction.step import RestartUnit

UNIT = "decode.service"
CONFLICT = "Transaction for decode.service/start is destructive (decode.service has 'stop' queued)"


class Systemctl:
    """A unit that runs, and a job of somebody else's that conflicts with any of ours."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def run(self, *words: str, deadline_s: float = 30.0) -> Said:
        del deadline_s
        self.asked.append(words)
        return Said(1, "", CONFLICT)

    def show(self, _unit: str) -> dict[str, str]:
        return {"ActiveState": "active", "SubState": "running", "InvocationID": "one"}

    def log_lines(self, *_: object) -> tuple[str, ...]:
        return ("last words",)


@pytest.mark.parametrize(("goes_back", "mode"), [(False, "fail"), (True, "replace")])
def test_a_change_waits_for_nobody_s_job_and_the_way_back_for_none(goes_back, mode):
    systemctl = Systemctl()
    restarter = Restarter(systemctl, SystemClock(), checkpoint=lambda: None)

    with pytest.raises(RestartFailed, match="destructive") as failed:
        restarter.restart(RestartUnit(UNIT, 0.1, 1.0), kill=goes_back)

    ((verb, *words),) = systemctl.asked
    assert verb == "stop"
    assert f"--job-mode={mode}" in words
    assert "--no-block" in words
    assert failed.value.log_lines == ("last words",)
