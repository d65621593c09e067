"""Which dead-man a host gets: systemd's only where systemd is the one that answers."""

import pytest

from fleetctl.agent import deadman
from fleetctl.agent.deadman import DeadMan, Program
from fleetctl.agent.state import StateDir
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


class Recorded:
    """A systemd that takes everything and keeps what it was told."""

    def __init__(self):
        self.told = []

    def command(self, *argv, deadline_s=30.0):
        self.told.append(argv)
        return Said(0, "", "")


@pytest.mark.parametrize("delay_s", [0.0, 3.0, 600.0])
def test_a_timer_of_systemd_is_at_most_a_second_late_and_tried_again_when_it_fails(
    tmp_path, delay_s
):
    told = Recorded()
    man = DeadMan(StateDir(tmp_path), Program("python3", "agent"), told)

    name = man.start_timer("lease", delay_s)

    ((program, *words),) = told.told
    options = dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
    assert program == "systemd-run"
    assert int(options["timer-property"].removeprefix("AccuracySec=").removesuffix("ms")) <= 1000
    assert delay_s <= float(options["on-active"].rstrip("s")) <= delay_s + 0.1
    assert "--property=Restart=on-failure" in words
    assert name == f"{options['unit']}.timer"
