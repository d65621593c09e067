"""What CI runs ends with what it found, and takes along what it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.host.processes import processes_with, wait_until

RUN = Path(__file__).parents[2] / ".ci" / "run"


@pytest.fixture
def tree(tmp_path):
    """A tree with CI's program, and others that only do as they are told."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci" / "run")
    for name in ("set-up", "check", "test"):
        program(tmp_path, name, "exit 0")
    return tmp_path


def program(tree, name, body):
    path = tree / "scripts" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(("check", "test", "code"), [(0, 0, 0), (1, 0, 1), (0, 3, 3), (1, 3, 1)])
def test_ci_fails_where_a_check_or_a_test_does_and_tells_what_the_checks_said(
    tree, check, test, code
):
    program(tree, "check", f"echo checked; exit {check}")
    program(tree, "test", f"exit {test}")

    done = subprocess.run([tree / ".ci/run"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (code, "checked\n")


@pytest.mark.parametrize(
    ("send", "number"),
    [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)],
    ids=["ctrl-c", "kill"],
)
def test_checks_that_are_under_way_end_with_ci(tree, send, number):
    mark = str(tree / "checking")
    program(tree, "check", f"bash -c 'sleep 60; true' {mark}; true")
    program(tree, "test", "echo begun; exec sleep 60")
    with subprocess.Popen(
        [tree / ".ci/run"], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        wait_until(lambda: processes_with(mark) != [])

        send(process.pid, number)

        try:
            assert process.wait() != 0
            wait_until(lambda: processes_with(mark) == [], deadline_s=5.0)
        finally:
            with contextlib.suppress(ProcessLookupError):  # a kill of one program leaves the tests
                os.killpg(process.pid, signal.SIGKILL)
