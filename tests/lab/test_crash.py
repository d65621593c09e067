"""Whatever a controller leaves that is killed in the middle of `up`, `down` and `up` handle."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetctl.errors import LabError
from fleetctl.lab import HostState, Kind, Lab
from fleetctl.lab.knock import answers
from fleetctl.lab.machine import links_named
from fleetctl.lab.network import tokens_of
from fleetctl.lab.processes import pids_of_lab
from fleetctl.lab.record import Phase, read_record

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
UP = """
import sys
from pathlib import Path
from fleetctl.lab import Kind, Lab
directory, kind, source = sys.argv[1:]
Lab.at(Path(directory)).up(2, kind=Kind(kind), tree_source=Path(source))
"""


def has_record(lab: Lab) -> bool:
    return read_record(lab.directory) is not None


def has_planned_hosts(lab: Lab) -> bool:
    return len(lab.hosts) == 2


def has_disk(lab: Lab) -> bool:
    return any(lab.paths.hosts.glob("*/*"))


def has_made_a_host(lab: Lab) -> bool:
    return any(host.phase is Phase.MADE for host in lab.hosts)


def has_started_a_host(lab: Lab) -> bool:
    cables = [name for token in tokens_of(lab.directory) for name in links_named(f"fl{token}-")]
    return bool(cables or pids_of_lab(lab.directory))


def has_an_answer(lab: Lab) -> bool:
    return any(answers(host.address, host.port, timeout_s=0.2) for host in lab.hosts)


MOMENTS = [
    has_record,
    has_planned_hosts,
    has_disk,
    has_made_a_host,
    has_started_a_host,
    has_an_answer,
]


@dataclass
class Controller:
    """A process that runs `up` and is killed at a moment."""

    lab: Lab
    kind: Kind
    source: Path

    def kill_when(self, moment) -> None:
        argv = [sys.executable, "-c", UP, str(self.lab.directory), self.kind, str(self.source)]
        pause = threading.Event()
        with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as process:
            while not moment(self.lab):
                assert process.poll() is None, "up ended before the moment came"
                pause.wait(0.002)
            process.kill()


@pytest.fixture
def controller(labs, lab_kind):
    return Controller(Lab.at(labs.new_directory()), lab_kind, labs.standin)


@pytest.mark.parametrize("moment", MOMENTS)
def test_down_after_a_crash_of_up_leaves_nothing(labs, controller, moment):
    controller.kill_when(moment)
    labs.remember(controller.lab)
    assert controller.lab.down() is True
    directory = controller.lab.directory.parent
    directory.rmdir()  # nothing else is in it
    assert labs.left_behind_in(directory) == []


@pytest.mark.parametrize("moment", [has_disk, has_started_a_host])
def test_up_after_a_crash_of_up_completes_the_lab(labs, controller, moment):
    controller.kill_when(moment)
    controller.lab.up(2, tree_source=labs.standin)
    assert controller.lab.states() == {"lab-1": HostState.UP, "lab-2": HostState.UP}
    labs.down(controller.lab.directory.parent)


def test_a_host_that_was_never_made_is_reported_and_not_booted(labs, controller):
    controller.kill_when(has_planned_hosts)
    states = controller.lab.states()
    unmade = [name for name, state in states.items() if state is HostState.UNMADE]
    assert unmade
    for name in unmade:
        with pytest.raises(LabError, match="not made yet"):
            controller.lab.boot(name)
    labs.down(controller.lab.directory.parent)
