"""What is read about the machine is right, also where names are odd."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from fleetctl.lab import machine
from fleetctl.lab.machine import Process, descendants, pids_matching, processes


def test_a_process_is_found_by_its_environment_and_its_arguments():
    mark = f"mark-{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", f"arg {mark}"],
        env={"MARK": mark},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        child.stdout.readline()
        assert pids_matching("environ", re.compile(rb"MARK=" + mark.encode())) == {child.pid}
        assert pids_matching("cmdline", re.compile(rb"\0arg " + mark.encode())) == {child.pid}
        assert processes()[child.pid].parent_pid == os.getpid()
        child.stdin.close()


def test_descendants_are_found_at_any_depth_and_without_the_dead():
    known = {
        1: Process(1, 0, "S"),
        2: Process(2, 1, "S"),
        3: Process(3, 2, "Z"),
        4: Process(4, 3, "S"),
        9: Process(9, 1, "S"),
    }
    assert descendants({2, 77}, known) == {2, 4}


@pytest.mark.parametrize(
    ("written", "point"), [("/a\\040b", "/a b"), ("/a\\134b", "/a\\b"), ("/ab", "/ab")]
)
def test_mount_points_are_unescaped(written, point):
    line = f"22 27 0:21 / {written} rw shared:1 - tmpfs tmpfs rw"
    assert machine._parsed(line) == machine.Mount(point, "0:21", "tmpfs")
