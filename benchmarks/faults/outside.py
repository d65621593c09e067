"""Faults from outside of the host's agent: controller, network, sshd, power, other controllers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from benchmarks.faults.fault import Attempt, Fault, now_s
from benchmarks.faults.lab_site import LabSite
from fleetctl.errors import FleetError, LeaseHeld
from fleetctl.host.agent_client import new_id

LEASE_S = 3.0


def lab_host(attempt: Attempt) -> LabSite:
    """Return the attempt's site, which must be a lab host."""
    assert isinstance(attempt.site, LabSite)
    return attempt.site


def background(act: Callable[[], object]) -> threading.Thread:
    """Run something that is going to fail while we disturb it."""

    def quietly() -> None:
        with suppress(FleetError, OSError):
            act()

    thread = threading.Thread(target=quietly)
    thread.start()
    return thread


def applying(attempt: Attempt, *, lease_s: float = LEASE_S) -> threading.Thread:
    """Start an apply in the background, over a connection of its own."""
    site = attempt.site
    agent, lease = site.agent(), site.lease(lease_s)
    return background(
        lambda: agent.apply(lease, new_id(), site.steps(), site.contents(), deadline_s=60)
    )


def kill_controller(attempt: Attempt) -> Fault:
    """SIGKILL the controller when the journal holds N entries; N over the table's rows is each."""
    site = lab_host(attempt)
    entries = attempt.dice.randint(0, 2 * len(site.steps()) + 2)
    words = (str(site.directory), site.name, str(LEASE_S))
    argv = [sys.executable, "-m", "benchmarks.faults.controller", *words]
    known = {path.name for path in site.journals.glob("*")}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        assert controller.stdin is not None
        controller.stdout.readline()
        controller.stdin.write(b"go\n")
        controller.stdin.flush()
        _wait_for_entries(site, known, entries, limit_s=20)
        controller.kill()
    return attempt.ended(f"{entries} entries", since_s=now_s(), left_s=LEASE_S)


def _wait_for_entries(site: LabSite, known: set[str], count: int, *, limit_s: float) -> None:
    deadline_s = now_s() + limit_s
    while now_s() < deadline_s:
        for path in site.journals.glob("*/journal"):
            if path.parent.name not in known and _entries(path.read_bytes()) >= count:
                return
        if count == 0:
            return
        time.sleep(0.002)


def _entries(data: bytes) -> int:
    return data.count(b"\n\n")


def cut_network(attempt: Attempt) -> Fault:
    """Cut the host from the network at some moment of an apply or after it, for a while."""
    site = lab_host(attempt)
    thread = applying(attempt)
    delay_s = attempt.dice.uniform(0, 2.5)
    time.sleep(delay_s)
    site.lab.cut(site.name)
    since_s = now_s()
    time.sleep(LEASE_S + attempt.dice.uniform(0, 2.0))
    site.lab.heal(site.name)
    thread.join()
    site.close()
    return attempt.ended(f"after {delay_s:.2f} s", since_s=since_s, left_s=LEASE_S + 4.0)


def freeze_sshd(attempt: Attempt) -> Fault:
    """Stop every sshd process of the host for some seconds, while something is applied."""
    site = lab_host(attempt)
    delay_s, frozen_s = attempt.dice.uniform(0.1, 2.0), attempt.dice.uniform(3, 5)
    freeze = f"sleep {delay_s}; killall -STOP sshd; sleep {frozen_s}; killall -CONT sshd"
    site.shell(f"systemd-run --quiet --collect sh -c '{freeze}'")
    thread = applying(attempt)
    time.sleep(delay_s)
    since_s = now_s()
    time.sleep(frozen_s)
    thread.join()
    site.close()
    return attempt.ended(f"after {delay_s:.2f} s", since_s=since_s, left_s=LEASE_S + 3.0)


def cut_power(attempt: Attempt) -> Fault:
    """Cut the host from power at some moment and boot it again; the lease is long."""
    site = lab_host(attempt)
    thread = applying(attempt, lease_s=600)
    delay_s = attempt.dice.uniform(0, 2.5)
    time.sleep(delay_s)
    site.lab.kill(site.name)
    thread.join()
    site.close()
    site.lab.boot(site.name)
    return attempt.ended(f"after {delay_s:.2f} s", since_s=now_s(), left_s=5.0)


def cut_power_twice(attempt: Attempt) -> Fault:
    """Cut the power again while the host is booting and restoring itself."""
    site = lab_host(attempt)
    with suppress(FleetError):
        site.agent().apply(site.lease(600), new_id(), site.steps(), site.contents())
    site.close()
    site.lab.kill(site.name)
    booting = background(lambda: site.lab.boot(site.name))
    delay_s = attempt.dice.uniform(0.05, 0.8)
    time.sleep(delay_s)
    booting.join()
    site.lab.kill(site.name)
    site.lab.boot(site.name)
    return attempt.ended(f"after {delay_s:.2f} s", since_s=now_s(), left_s=5.0)


def two_controllers(attempt: Attempt) -> Fault:
    """Apply from two controllers at once: one does, the other is told who."""
    site = attempt.site
    answers: list[object] = []

    def apply() -> None:
        try:
            agent = site.agent()
            agent.apply(site.lease(LEASE_S), new_id(), site.steps(), site.contents(), deadline_s=60)
            answers.append("applied")
        except LeaseHeld as refused:
            answers.append(f"refused: {refused.what}")
        except FleetError as error:
            answers.append(error)

    _ = site.transport  # connect once, before two threads would
    threads = [background(apply) for _ in range(2)]
    for thread in threads:
        thread.join()
    words = sorted(str(answer) for answer in answers)
    fair = len(words) == 2 and words[0] == "applied" and "nemesis@lab" in words[1]
    wrong = () if fair else (f"answers: {words}",)
    return attempt.ended("both at once", since_s=now_s(), left_s=LEASE_S, more_wrong=wrong)


def kill_agent(attempt: Attempt) -> Fault:
    """SIGKILL the agent at some moment, as the kernel does when memory runs out."""
    site = attempt.site
    thread = applying(attempt)
    delay_s = attempt.dice.uniform(0.05, 2.0)
    time.sleep(delay_s)
    agents = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | "
    agents += "grep -q 'agent/[0-9a-f]* apply' && kill -KILL ${p#/proc/}; done"
    site.shell(agents)
    since_s = now_s()
    thread.join()
    return attempt.ended(f"after {delay_s:.2f} s", since_s=since_s, left_s=LEASE_S)
