"""Units that come up again: a start that fails at once is not taken for one that is under way."""

from types import SimpleNamespace

import pytest

from fleetctl.agent.dependents import DEADLINE_S, SETTLE_S, start_again


class Host:
    """systemctl and a clock: the unit `a` is in a state until its time is over."""

    def __init__(self, *states: tuple[float, str]) -> None:
        self.now = 0.0
        self._states = states
        self._is_asked = False

    def monotonic_s(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run(self, verb: str, *_words: str) -> SimpleNamespace:
        self._is_asked |= verb == "start"
        return SimpleNamespace(exit_code=0, output="", errors="")

    def show(self, _unit: str, _names: object) -> dict[str, str]:
        if not self._is_asked:
            return {"ActiveState": "inactive"}
        return {"ActiveState": next(state for until_s, state in self._states if self.now < until_s)}


@pytest.mark.parametrize(
    ("states", "down", "within_s"),
    [
        ([(1, "activating"), (99, "failed")], ("a",), SETTLE_S),
        ([(1, "inactive"), (99, "active")], (), SETTLE_S),
        ([(1, "activating"), (99, "active")], (), SETTLE_S),
        ([(99, "activating")], (), SETTLE_S + 1),
        ([(99, "inactive")], ("a",), DEADLINE_S + 1),
        ([(99, "failed")], ("a",), 1.0),
    ],
)
def test_what_comes_up_again_is_told_from_what_only_tried(states, down, within_s):
    host = Host(*states)

    assert start_again(host, host, ("a",)) == down
    assert host.now <= within_s
