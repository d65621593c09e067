"""Signals while hosts are held, where a closed terminal is as good as Ctrl-C; the inventory."""

import os
import signal
import subprocess
import sys

import pytest

from fleetctl.cli.console import Console
from fleetctl.cli.wiring import the_inventory
from fleetctl.errors import InputError

HOST = """
address = "127.0.0.1"
user = "nobody"
tree = "/srv/x"
python = "/usr/bin/python3"
model = "m"
unit = "u.service"
service_url = "http://127.0.0.1:1"
"""
HOLD = """
import signal, sys
from contextlib import ExitStack
from pathlib import Path
from fleetctl.cli.console import Console
from fleetctl.cli.wiring import edges
if "nohup" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
with ExitStack() as stack:
    outside = stack.enter_context(edges(Path("runs"), Console()))
    if "holding" in sys.argv:
        stack.enter_context(outside.stop.holds("experiment", "r1", "lab-1"))
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


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGINT, ["run", "holding", "--runs", "r"]),
        (signal.SIGTERM, []),
        (signal.SIGHUP, ["aa", "holding", "--inventory=i.toml"]),
    ],
)
def test_the_first_signal_asks_for_an_orderly_end_and_the_second_says_what_to_type(number, words):
    with hold(*words) as process:
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, number)
        process.stdin.write("\n")
        assert process.stdout.readline() == "asked\n"
        os.kill(process.pid, number)
        _, said = process.communicate()

    assert process.returncode == 130, said
    place = " --inventory i.toml" if "--inventory=i.toml" in words else ""
    runs = " --runs r" if "r" in words else ""
    if "holding" in words:
        assert "; being restored: lab-1 (again: leave at once)" in said
        assert f"`fleetctl status --host lab-1{place}{runs}` says when" in said
        assert f"at once: `fleetctl rollback r1 --host lab-1{place}{runs}`" in said
        assert f"`fleetctl resume r1{place}{runs}` goes on" in said
    else:
        assert "restored" not in said
        assert "` starts it again" in said


def test_below_nohup_a_closed_terminal_means_nothing():
    with hold("nohup") as process:
        assert process.stdout.readline() == "held\n"
        os.kill(process.pid, signal.SIGHUP)
        process.stdin.write("\n")
        assert process.stdout.readline() == "goes on\n"
        process.communicate("\n")

    assert process.returncode == 0


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLEETCTL_LAB_DIR", raising=False)
    return tmp_path


@pytest.mark.parametrize("moved", [False, True])
def test_the_lab_s_inventory_is_found_where_the_lab_was_put(nowhere, monkeypatch, moved):
    place = nowhere / ("elsewhere" if moved else ".fleetctl/lab")
    place.mkdir(parents=True)
    (place / "inventory.toml").write_text("[hosts.only-here]\n" + HOST)
    if moved:
        monkeypatch.setenv("FLEETCTL_LAB_DIR", str(place))

    assert [*the_inventory(None, Console()).hosts] == ["only-here"]


def test_an_inventory_that_is_nowhere_is_told_with_the_places_and_the_directory(
    nowhere, monkeypatch
):
    monkeypatch.setenv("FLEETCTL_LAB_DIR", "/gone/lab")

    with pytest.raises(InputError) as told:
        the_inventory(None, Console())

    for part in ("inventory/fleet.toml", "/gone/lab/inventory.toml", f"seen from {nowhere}"):
        assert part in told.value.why
    assert "`fleetctl lab up`" in told.value.next_step
