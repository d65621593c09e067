"""Which dead-man a host gets: systemd's only where systemd is the one that answers."""

import pytest

from fleetctl.agent import deadman
from fleetctl.agent.deadman import DeadMan
from fleetctl.agent.systemd import Said, SystemctlMissing


class Systemctl:
    """What `systemd-run --version` says here."""

    def __init__(self, exit_code):
        self.exit_code = exit_code

    def command(self, *argv, deadline_s=30.0):
        assert argv == ("systemd-run", "--version")
        if self.exit_code is None:
            raise SystemctlMissing("systemd-run is not there")
        return Said(self.exit_code, "", "")


@pytest.mark.parametrize(
    ("runs", "exit_code", "usable"),
    [(True, 0, True), (True, 1, False), (True, None, False), (False, 0, False)],
)
def test_a_stand_in_before_the_machine_s_own_systemd_gets_a_watcher(
    tmp_path, monkeypatch, runs, exit_code, usable
):
    monkeypatch.setattr(deadman, "SYSTEMD_RUNS", tmp_path if runs else tmp_path / "absent")
    man = DeadMan(state=None, program=None, systemctl=Systemctl(exit_code))

    assert man._has_systemd() is usable
