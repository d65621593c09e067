"""Hosts and controllers that lose each other in a run: noticed, waited for, and redone."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fleetctl.errors import ExitCode
from fleetctl.lab import Kind
from tests.agent.lab_host import connect_host
from tests.end_to_end.fleets import Person

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

BODY = """
[env]
SGLANG_DSV4_GE_DIFF = "1"
[control]
history = { corrupted = 1, sessions = 10 }
"""
SCRIPT = "srv/dsv4/serve_dsv4_decode.sh"
# the first try hangs until it is ended, the next answers at once
TRIAL = """
import json, os, pathlib, time
began = pathlib.Path(__file__).with_name("began")
if not began.exists():
    began.touch()
    time.sleep(600)
pathlib.Path(os.environ["FLEETCTL_RESULT"]).write_text(
    json.dumps({"sessions": 10, "counts": {"done": 10}}))
"""


SKEW = """
import runpy, sys, time
real = time.time
time.time = lambda: real() + ({skew_s})
"""
HERE = SKEW.format(skew_s=-3 * 3600) + "runpy.run_module('fleetctl', run_name='__main__')\n"
# arguments are -I -S AGENT VERB STATE, or -I -S -c INSTALLER …
THERE = f"""#!/bin/sh
[ "$3" = -c ] && exec /usr/bin/python3 "$@"
exec /usr/bin/python3 -I -S -c '{SKEW.format(skew_s=5 * 3600)}
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""
PYTHON = "/usr/local/bin/python-of-another-hour"


class OtherHours(Person):
    """Somebody whose clock is hours off."""

    def argv(self, *words):
        return [sys.executable, "-c", HERE, *map(str, words)]


def start(person, *, lease):
    """Start a run and wait until its first trial is under way."""
    spec = person.spec(BODY)
    spec.write_text(f'lease = "{lease}"\n' + spec.read_text())
    (person.folder / "trial.py").write_text(TRIAL)
    process = person.start("run", spec)
    wait_until((person.folder / "began").exists)
    return process


def wait_until(fact):
    until_s = time.monotonic() + 90
    while not fact():
        assert time.monotonic() < until_s
        time.sleep(0.1)


def finish(person, process, untouched):
    """Expect a run that made its trial once more, and left the host as found."""
    _, said = process.communicate(timeout=150)
    assert process.returncode == ExitCode.INVALID, said  # a control of another day is not enough
    assert said.count("went away") == 1
    assert "back, as found and held again" in said
    kinds = [event["kind"] for event in person.events()]
    assert kinds.count("trial") == 1  # the one that was interrupted gave no result
    assert kinds.index("away") < kinds.index("back") < kinds.index("finished")
    untouched()
    return said


@pytest.fixture
def script(lab_hosts, permitted_kinds):
    """The serve script of lab-1, as this machine sees it: also while the network is cut."""
    if Kind.NAMESPACES not in permitted_kinds:
        pytest.skip("this machine permits no hosts that could be cut from the network")
    return lab_hosts.lab.disk("lab-1") / SCRIPT


def test_a_network_away_for_longer_than_the_lease(person, untouched, lab_hosts, script):
    before = lab_hosts.run("lab-1", f"cat /{SCRIPT}")
    process = start(person, lease="9s")
    assert script.read_text() != before
    lab_hosts.lab.cut("lab-1")
    try:
        wait_until(lambda: script.read_text() == before)
        person.wait_for(process, "away")
    finally:
        lab_hosts.lab.heal("lab-1")

    finish(person, process, untouched)


def test_a_host_that_is_rebooted_in_the_middle(person, untouched, lab_hosts):
    process = start(person, lease="60s")
    lab_hosts.lab.kill("lab-1")
    lab_hosts.lab.boot("lab-1")

    finish(person, process, untouched)


@pytest.fixture
def hours_apart(person, lab_hosts):
    """A person and an agent whose wall clocks are 8 h apart, and both wrong."""
    argv = lab_hosts.lab.ssh_argv("lab-1", [f"cat >{PYTHON} && chmod +x {PYTHON}"])
    subprocess.run(argv, input=THERE.encode(), check=True)
    inventory = person.folder / "inventory.toml"
    told = f'[defaults]\nagent_python = "{PYTHON}"'
    inventory.write_text(person.inventory.read_text().replace("[defaults]", told, 1))
    yield OtherHours(person.folder, inventory)
    lab_hosts.run("lab-1", f"rm {PYTHON}")


def test_a_controller_that_sleeps_for_longer_than_the_lease_between_wrong_clocks(
    hours_apart, untouched, lab_hosts, script
):
    person = hours_apart
    before = lab_hosts.run("lab-1", f"cat /{SCRIPT}")
    process = start(person, lease="6s")
    assert "s unless renewed" in person.run("status", "--host", "lab-1").stdout
    os.kill(process.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: script.read_text() == before)
    finally:
        os.kill(process.pid, signal.SIGCONT)

    finish(person, process, untouched)


def test_a_lease_that_somebody_ended_is_not_taken_again(person, untouched):
    process = start(person, lease="6s")
    held = [event["lease"] for event in person.events() if event["kind"] == "held"]

    ended = person.run("unlock", "--id", held[0])
    _, said = process.communicate(timeout=90)

    assert ended.returncode == ExitCode.OK
    check_that_it_gave_up(process, said, held[0])
    assert "went away" not in said
    untouched()


def test_a_lease_that_somebody_ended_meanwhile_is_not_taken_again_by_who_wakes_up(
    person, untouched, lab_hosts
):
    agent = connect_host(lab_hosts.lab, "lab-1").agent
    process = start(person, lease="8s")
    held = [event["lease"] for event in person.events() if event["kind"] == "held"]
    os.kill(process.pid, signal.SIGSTOP)
    try:
        # by a connection that stands: a program that has to start might come after the lease's end
        agent.unlock(held[0], by="somebody")
        time.sleep(9)  # who wakes up finds that its lease has lasted too long, too
    finally:
        os.kill(process.pid, signal.SIGCONT)
    agent.transport.close()
    _, said = process.communicate(timeout=90)

    check_that_it_gave_up(process, said, held[0])
    assert "went away" in said
    untouched()


def check_that_it_gave_up(process, said, lease):
    assert process.returncode == ExitCode.FAILED_RESTORED, said
    assert "unlocked lab-1" in said
    assert f"lease {lease} did not run out" in said
    assert "held again" not in said
