"""Lab hosts for every test that wants a real one.

`lab_hosts` is a lab of two hosts for the whole session: leave them as you found them.
`fresh_lab` makes labs for one test. Both serve a stand-in that starts in a tenth of a second.
`lab_kind` runs a test once for each kind of host that this machine permits.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from fleetctl.clock import SystemClock
from fleetctl.errors import LabError
from fleetctl.lab import HostState, Kind, Lab
from fleetctl.lab.cgroup import find_cgroup2
from fleetctl.lab.machine import links_named, mount_points_below
from fleetctl.lab.permission import check_machine, what_is_permitted
from fleetctl.lab.processes import pids_of_lab
from fleetctl.lab.record import UNIT, read_record

STANDIN = Path(__file__).parent / "lab" / "standin"
DIRECTORY_PREFIX = "fleetctl-test-"
PLACES = ("/root", "/home", "/srv", "/opt", "/etc", "/usr/local/bin")

# in CI the same examples every time, so that a red run can be repeated; people explore by hand
# without a deadline, since how long an example takes says more of the machine's load than of it
settings.register_profile("here", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# a shell's `&` starts its programs deaf to Ctrl-C, and those that tests interrupt inherit it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# below `nohup` tests stay deaf to a closed terminal; what they start does not inherit a handler
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files that take long first: begun last, they would keep one worker busy alone."""
    weights: dict[Path, int] = {}
    for item in items:
        uses_labs = "labs" in getattr(item, "fixturenames", ())
        weight = 2 * bool(item.get_closest_marker("slow")) + uses_labs
        weights[item.path] = max(weight, weights.get(item.path, 0))
    items.sort(key=lambda item: -weights[item.path])


@dataclass(frozen=True)
class RunningLab:
    """A lab under test."""

    lab: Lab

    @property
    def inventory(self) -> Path:
        return self.lab.paths.inventory

    def run(self, name: str, command: str, *, deadline_s: float = 60.0) -> str:
        """Run a shell command on a host and return its stdout; a failure fails the test."""
        argv = self.lab.ssh_argv(name, [command])
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=deadline_s,
            check=False,
        )
        assert done.returncode == 0, f"{command} on {name}: {done.returncode}\n{done.stderr}"
        return done.stdout

    def states(self) -> dict[str, HostState]:
        return self.lab.states()

    def names(self) -> set[str]:
        """Return what lies where tests change hosts; of process hosts, whose root is ours, none."""
        record = read_record(self.lab.directory)
        if record is None or record.kind is not Kind.NAMESPACES:
            return set()
        # below a host's /etc is this machine's, where other tests make users meanwhile
        find = (
            f"find {' '.join(PLACES)} -xdev -ignore_readdir_race -name __pycache__ -prune"
            r" -o -regex '/etc/\(n?\(passwd\|group\|g?shadow\)\|sub[ug]id\|sudoers.d/fleet\).*'"
            r" -prune"
            r" -o -printf '%p %y %m %l\n'"
        )
        hosts = self.states()
        return {f"{host}:{line}" for host in hosts for line in self.run(host, find).splitlines()}

    def wait_until_active(self, name: str) -> None:
        """Wait until the decode service of a host runs."""
        self.run(name, f"until systemctl is-active {UNIT}; do sleep 0.1; done")


@dataclass
class Labs:
    """The labs of one pytest process: all of them end with it."""

    standin: Path = STANDIN
    directories: list[Path] = field(default_factory=list)
    tokens: dict[Path, str] = field(default_factory=dict)

    def new_directory(self, root: Path | None = None) -> Path:
        made = tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-", dir=root)
        directory = Path(made).resolve()
        self.directories.append(directory)
        return directory / "lab"

    def up(
        self, hosts: int = 1, *, kind: Kind | None = None, disk_bytes: int | None = None
    ) -> RunningLab:
        lab = Lab.at(self.new_directory())
        lab.up(hosts, kind=kind, tree_source=self.standin, disk_bytes=disk_bytes)
        self.remember(lab)
        return RunningLab(lab)

    def down(self, directory: Path) -> None:
        """End the lab in a directory that `new_directory` made, whatever became of it."""
        lab = Lab.at(directory / "lab")
        self.remember(lab)
        lab.down()
        shutil.rmtree(directory, ignore_errors=True)

    def remember(self, lab: Lab) -> None:
        """Keep the token of a lab, by which its traces are found when its record is gone."""
        with contextlib.suppress(LabError):
            if record := read_record(lab.directory):
                self.tokens[lab.directory.parent] = record.token

    def down_all(self) -> None:
        for directory in self.directories:
            self.down(directory)

    def left_behind(self) -> list[str]:
        """Return what labs of this process still have on the machine."""
        return [trace for directory in self.directories for trace in self.left_behind_in(directory)]

    def left_behind_in(self, directory: Path) -> list[str]:
        """Return what the lab in a directory that `new_directory` made has on the machine."""
        found = mount_points_below(directory)
        found += [f"process {pid}" for pid in pids_of_lab(directory / "lab")]
        found += [str(directory)] if directory.exists() else []
        if token := self.tokens.get(directory):
            found += links_named(f"fl{token}")
            group = (find_cgroup2() or Path("/nowhere")) / f"fleetctl-lab-{token}"
            found += [str(group)] if group.exists() else []
        return found


def _sweep() -> None:
    """End labs of pytest processes that were killed; of several workers one after the other."""
    lock = Path(tempfile.gettempdir()) / f"{DIRECTORY_PREFIX}sweeping-{os.geteuid()}"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        _end_labs_of_the_dead()


def _end_labs_of_the_dead() -> None:
    for directory in Path(tempfile.gettempdir()).glob(f"{DIRECTORY_PREFIX}*"):
        pid = directory.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
        is_ours = directory.stat().st_uid == os.geteuid()
        if is_ours and pid.isdecimal() and not Path("/proc", pid).exists():
            Lab.at(directory / "lab").down()
            shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def labs() -> Iterator[Labs]:
    """The labs of this process; a session that leaves something behind fails."""
    _sweep()
    made = Labs()
    atexit.register(made.down_all)
    yield made
    made.down_all()
    assert made.left_behind() == []


@pytest.fixture(scope="session")
def permitted_kinds(tmp_path_factory: pytest.TempPathFactory) -> set[Kind]:
    """The kinds of hosts that this machine permits; without sshd the test is skipped."""
    try:
        check_machine()
    except LabError as missing:
        pytest.skip(f"no lab here: {missing}")
    return {Kind.PROCESSES, what_is_permitted(tmp_path_factory.mktemp("probe")).kind}


@pytest.fixture(params=list(Kind), scope="session")
def lab_kind(request: pytest.FixtureRequest, permitted_kinds: set[Kind]) -> Kind:
    """Each kind of host in turn."""
    kind: Kind = request.param
    if kind not in permitted_kinds:
        pytest.skip(f"this machine does not permit hosts of {kind}")
    return kind


@pytest.fixture(scope="session")
def session_hosts(labs: Labs, permitted_kinds: set[Kind]) -> RunningLab:
    """The hosts behind `lab_hosts`."""
    return labs.up(2)


@pytest.fixture(scope="module")
def lab_hosts(session_hosts: RunningLab) -> Iterator[RunningLab]:
    """Two hosts of the best kind, for the whole session: lab-1 and lab-2.

    A module whose tests leave a file behind, or take one away, fails.
    """
    before = session_hosts.names()
    yield session_hosts
    assert session_hosts.names() ^ before == set(), "the tests of this module left their traces"


@pytest.fixture(scope="session")
def lab_of_each_kind(labs: Labs, lab_kind: Kind) -> RunningLab:
    """Two hosts of each kind in turn, for the whole session."""
    return labs.up(2, kind=lab_kind)


@pytest.fixture
def fresh_lab(labs: Labs, permitted_kinds: set[Kind]) -> Iterator[Callable[..., RunningLab]]:
    """A function that makes labs for this test: `fresh_lab(hosts, kind=…, disk_bytes=…)`."""
    made: list[RunningLab] = []

    def make(hosts: int = 1, **options: Any) -> RunningLab:
        made.append(labs.up(hosts, **options))
        return made[-1]

    yield make
    for running in made:
        labs.down(running.lab.directory.parent)


@pytest.fixture
def clock() -> SystemClock:
    """The machine's clock."""
    return SystemClock()
