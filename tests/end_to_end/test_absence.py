"""Hosts and controllers that lose each other in a run: noticed, waited for, and redone."""

import os
import signal
import time

import pytest

from fleetctl.errors import ExitCode

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]

FLAG = '[env]\nSGLANG_DSV4_GE_DIFF = "1"\n'
SCRIPT = "srv/dsv4/serve_dsv4_decode.sh"
# ends the session of whoever else is logged in; ours ends by itself
HANG_UP = """
for status in /proc/[0-9]*/status; do
  pid=$(echo "$status" | cut -d/ -f3)
  grep -q '^Name:.sshd' "$status" || continue
  mine=$(cat /proc/$$/status | sed -n 's/^PPid:.//p')
  [ "$pid" = "$mine" ] && continue
  tr '\\0' ' ' <"/proc/$pid/cmdline" | grep -q 'sshd: root@notty' && kill -KILL "$pid"
done
true
"""


def start(person, *, lease, trial_s=4.0):
    spec = person.spec(FLAG, trial_s=trial_s)
    spec.write_text(f'lease = "{lease}"\n' + spec.read_text())
    return person.start("run", spec)


def wait_until(fact, *, deadline_s=60.0):
    until_s = time.monotonic() + deadline_s
    while not fact():
        assert time.monotonic() < until_s
        time.sleep(0.1)


def finish(person, process, untouched):
    """Expect a run that made every trial once in the end, and left the host as found."""
    _, said = process.communicate(timeout=120)
    assert process.returncode == ExitCode.INVALID, said  # the control never showed a fault
    assert said.count("went away") == 1
    assert "back, as found and held again" in said
    counted = [e for e in person.events() if e["kind"] == "trial" and not e["again"]]
    assert sorted(event["slot"] for event in counted) == [0, 1]
    kinds = [event["kind"] for event in person.events()]
    assert kinds.index("away") < kinds.index("back") < kinds.index("finished")
    untouched()
    return said


@pytest.fixture
def script(lab_hosts):
    """The serve script of lab-1, as this machine sees it: also while the network is cut."""
    return lab_hosts.lab.disk("lab-1") / SCRIPT


def test_a_network_away_for_longer_than_the_lease(person, untouched, lab_hosts, script):
    before = lab_hosts.run("lab-1", f"cat /{SCRIPT}")
    process = start(person, lease="3s", trial_s=6.0)
    person.wait_for(process, "deployed")
    wait_until(lambda: script.exists() and script.read_text() != before)
    lab_hosts.lab.cut("lab-1")
    try:
        wait_until(lambda: script.read_text() == before)
        person.wait_for(process, "away")
    finally:
        lab_hosts.lab.heal("lab-1")

    said = finish(person, process, untouched)
    assert "resume" not in said


def test_a_connection_that_is_reset_while_the_lease_lives(person, untouched, lab_hosts):
    process = start(person, lease="60s")
    person.wait_for(process, "deployed")
    lab_hosts.run("lab-1", HANG_UP)

    finish(person, process, untouched)


def test_a_host_that_is_rebooted_in_the_middle(person, untouched, lab_hosts):
    process = start(person, lease="60s")
    person.wait_for(process, "deployed")
    lab_hosts.lab.kill("lab-1")
    lab_hosts.lab.boot("lab-1")

    finish(person, process, untouched)


def test_a_controller_that_sleeps_for_longer_than_the_lease(person, untouched, lab_hosts):
    process = start(person, lease="3s")
    person.wait_for(process, "deployed")
    os.kill(process.pid, signal.SIGSTOP)
    try:
        wait_until(
            lambda: "free; nothing is held" in person.run("status", "--host", "lab-1").stdout
        )
    finally:
        os.kill(process.pid, signal.SIGCONT)

    finish(person, process, untouched)


def test_a_lease_that_somebody_ended_is_not_taken_again(person, untouched):
    process = start(person, lease="8s", trial_s=30.0)
    person.wait_for(process, "deployed")
    held = [event["lease"] for event in person.events() if event["kind"] == "held"]

    ended = person.run("unlock", "--id", held[0])
    _, said = process.communicate(timeout=90)

    assert ended.returncode == ExitCode.OK
    assert process.returncode == ExitCode.FAILED_RESTORED, said
    assert "the lease is gone" in said
    assert "went away" not in said
    untouched()
