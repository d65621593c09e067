"""Signals while hosts are held: a closed terminal and systemd's stop are as good as Ctrl-C."""

import os
import signal
import subprocess
import sys

import pytest

HOLD = """
import signal, sys
from pathlib import Path
from fleetctl.cli.console import Console
from fleetctl.cli.wiring import edges
if "nohup" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
with edges(Path("runs"), Console()) as outside:
    print("held", flush=True)
    sys.stdin.readline()
    print("asked" if outside.stop.is_asked else "goes on")
    sys.stdin.readline()
"""


def hold(*words):
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_for_an_orderly_end_and_the_second_leaves_at_once(number):
    with hold() as process:
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, number)
        process.stdin.write("\n")
        assert process.stdout.readline() == "asked\n"
        os.kill(process.pid, number)
        _, said = process.communicate()

    assert process.returncode == 130
    assert "the hosts are being restored" in said
    assert "dead-man" in said


def test_below_nohup_a_closed_terminal_means_nothing():
    with hold("nohup") as process:
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGHUP)
        process.stdin.write("\n")
        assert process.stdout.readline() == "goes on\n"
        process.communicate("\n")

    assert process.returncode == 0
