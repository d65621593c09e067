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
    """A systemd that keeps what it was told, and takes everything but an unknown property."""

    def __init__(self, unknown="-"):
        self.told = []
        self.unknown = unknown

    def command(self, *argv, deadline_s=30.0):
        self.told.append(argv)
        if any(self.unknown in word for word in argv if "property" in word):
            return Said(1, "", f"Unknown assignment: {self.unknown}=yes")
        return Said(0, "", "")


@pytest.mark.parametrize(("unknown", "asked"), [("IgnoreOnIsolate", 2), ("AccuracySec", 1)])
def test_an_old_systemd_gets_a_timer_without_what_it_does_not_know(tmp_path, unknown, asked):
    told = Recorded(unknown)
    man = DeadMan(StateDir(tmp_path), Program("python3", "agent"), told)

    if asked == 1:  # without that there would be no timer in time
        with pytest.raises(OSError, match="AccuracySec"):
            man.start_timer("lease", 3.0)
    else:
        man.start_timer("lease", 3.0)

    assert len(told.told) == asked
    assert not any("IgnoreOnIsolate" in word for word in told.told[1:][-1:])


@pytest.mark.parametrize("delay_s", [0.0, 3.0, 600.0])
def test_a_timer_of_systemd_is_at_most_a_second_late_and_tried_again_when_it_fails(
    tmp_path, delay_s
):
    told = Recorded("no such property")
    man = DeadMan(StateDir(tmp_path), Program("python3", "agent"), told)

    name = man.start_timer("lease", delay_s)

    ((program, *words),) = told.told
    options = dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
    (accuracy,) = [word.rpartition("=")[2] for word in words if "AccuracySec" in word]
    assert program == "systemd-run"
    assert int(accuracy.removesuffix("ms")) <= 1000
    assert delay_s <= float(options["on-active"].rstrip("s")) <= delay_s + 0.1
    assert "--property=Restart=on-failure" in words
    assert name == f"{options['unit']}.timer"
