"""Data on stdout changes no exit code: not by a reader that leaves, not by a poor terminal."""

import os
import subprocess
import sys

PRINT = """
import sys
from fleetctl.cli.data import print_json, print_lines
print_lines(f"line {n} \\u2713" for n in range(20000))
print_json({"a": "\\u540d"})
sys.exit(7)
"""


def run(*, stdout, environment=None, end=""):
    return subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {end}', sys.executable, PRINT],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
        check=False,
    )


def test_a_reader_that_leaves_changes_no_exit_code():
    done = run(stdout=subprocess.PIPE, end='| head -1; exit "${PIPESTATUS[0]}"')

    assert (done.returncode, done.stdout, done.stderr) == (7, "line 0 ✓\n", "")


def test_a_closed_stdout_changes_no_exit_code():
    done = run(stdout=subprocess.PIPE, end=">&-")

    assert (done.returncode, done.stderr) == (7, "")


def test_a_terminal_without_unicode_gets_every_line():
    done = run(stdout=subprocess.PIPE, environment={"PYTHONIOENCODING": "ascii"})

    assert done.returncode == 7
    assert done.stdout.splitlines()[19999] == r"line 19999 \u2713"


def test_a_terminal_that_was_closed_changes_no_exit_code():
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys\nsys.stdin.readline()\n{PRINT}"],
        stdin=subprocess.PIPE,
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.close(ours)
    _, said = process.communicate("\n")

    assert (process.returncode, said) == (7, "")
