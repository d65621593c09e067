"""SIGKILL at the N-th file-system call of an apply, a restore or a recovery, by strace."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from benchmarks.faults.fault import Attempt, Fault, now_s
from benchmarks.faults.site import GRACE_S, KILLABLE, Site
from fleetctl.errors import ApplyFailed, HostError
from fleetctl.host.agent_client import new_id
from fleetctl.transaction.lease import LeaseRequest

LEASE_S = 2.0
CALL = re.compile(r"^(\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Call:
    """One system call of a run: the `number`-th of its `name` (strace counts each name apart)."""

    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.name} #{self.number}"


VERBS = ("apply", "restore", "commit", "replace", "recovery")
CallKind = Callable[[Attempt, Call], Fault]


def wrapper(site: Site, calls: str, *options: str) -> str:
    """Put a python on the host that runs the real one under strace; return its path."""
    path = f"{site.state}-strace/{new_id()}"
    site.run("mkdir", "-p", f"{site.state}-strace")
    command = ["exec strace -qq -o", f"{path}.log -e trace={calls}", *options, site.python, '"$@"']
    site.transport.put(f"#!/bin/sh\n{' '.join(command)}\n".encode(), path, mode=0o755)
    return path


@contextmanager
def strace_killing(site: Site, call: Call) -> Iterator[str]:
    """Yield a python that is killed as it enters a call; a run that survives fails the fault."""
    path = wrapper(site, call.name, f"-e inject={call.name}:signal=KILL:when={call.number}")
    yield path
    log = site.run("cat", f"{path}.log").stdout
    site.run("rm", "-f", path, f"{path}.log")
    if b"killed by SIGKILL" not in log:
        raise NotReached(f"the run never came to {call}")


class NotReached(Exception):
    """A run took another course than the one that was counted; nothing was injected."""


def calls_of(site: Site, act: Callable[[str], object], traced: str = KILLABLE) -> list[Call]:
    """Return the file-system calls, from the first lock on, of one undisturbed run."""
    path = wrapper(site, traced)
    act(path)
    names = CALL.findall(site.run("cat", f"{path}.log").stdout.decode(errors="replace"))
    site.run("rm", "-f", path, f"{path}.log")
    seen = Counter[str]()
    calls = []
    for name in names:
        seen[name] += 1
        calls.append(Call(name, seen[name]))
    return calls[names.index("flock") :]


def apply_under(site: Site, python: str, *, lease_s: float = LEASE_S) -> tuple[str, str]:
    """Apply the site's plan with an agent that may be killed; return lease and transaction."""
    lease, transaction = site.lease(lease_s), new_id()
    try:
        site.agent(python).apply(lease, transaction, site.steps(), site.contents(), deadline_s=60)
    except HostError:
        pass  # it was killed, as it should be
    except ApplyFailed as error:
        raise NotReached(f"too slow for its lease: {error}") from error
    return lease.id, transaction


def kill_in_apply(attempt: Attempt, call: Call) -> Fault:
    """Kill an apply; the dead-man restores."""
    with strace_killing(attempt.site, call) as python:
        apply_under(attempt.site, python)
    return attempt.ended(str(call), since_s=now_s(), left_s=LEASE_S)


def kill_in_restore(attempt: Attempt, call: Call) -> Fault:
    """Apply, then kill the restore; the dead-man restores."""
    site, lease_s = attempt.site, LEASE_S + 2
    _, transaction = apply_under(site, site.python, lease_s=lease_s)
    with strace_killing(site, call) as python, suppress(HostError):
        site.agent(python).restore(transaction=transaction)
    return attempt.ended(str(call), since_s=now_s(), left_s=lease_s)


def kill_in_commit(attempt: Attempt, call: Call) -> Fault:
    """Apply, then kill the commit: kept or restored, nothing in between; then it is rolled back."""
    site = attempt.site
    lease_id, transaction = apply_under(site, site.python, lease_s=LEASE_S + 4)
    with strace_killing(site, call) as python, suppress(HostError):
        site.agent(python).commit(lease_id, transaction=transaction)
    since_s = now_s()
    while site.agent().status().leases and now_s() - since_s < LEASE_S + 4 + GRACE_S:
        time.sleep(0.2)
    states = [held.state for held in site.agent().status().transactions]
    more = () if states in ([], ["committed"]) else (f"states {states}",)
    since_s = now_s()
    site.agent().restore(transaction=transaction)
    return attempt.ended(str(call), since_s=since_s, left_s=0, more_wrong=more)


def kill_in_replace(attempt: Attempt, call: Call) -> Fault:
    """Apply, then kill the apply of the arm that replaces it; the dead-man restores."""
    site, lease = attempt.site, attempt.site.lease(LEASE_S + 4)
    first = new_id()
    site.agent().apply(lease, first, site.steps(), site.contents(), deadline_s=60)
    with strace_killing(site, call) as python, suppress(HostError):
        replace_first(site, python, lease, first)
    return attempt.ended(str(call), since_s=now_s(), left_s=LEASE_S + 4)


def replace_first(site: Site, python: str, lease: LeaseRequest, first: str) -> None:
    """Put another change in the place of the first."""
    content = site.originals[site.module] + b"\n# the other arm\n"
    steps = [site.write(site.module, content), *site.steps()[1:]]
    contents = site.contents(content)
    site.agent(python).apply(lease, new_id(), steps, contents, replaces=first, deadline_s=60)


def claim(site: Site, lease_id: str) -> None:
    """Begin the end of a lease by hand, its dead-man being dead."""
    path = f"{site.state}/leases/{lease_id}"
    armed = json.loads(site.transport.get(f"{path}.json"))["armed"]
    if armed["watcher_pid"]:
        site.run("kill", "-KILL", str(armed["watcher_pid"]))
    else:
        site.run("systemctl", "stop", armed["timer"])
    site.run("mv", f"{path}.json", f"{path}.ending")


def kill_in_recovery(attempt: Attempt, call: Call) -> Fault:
    """Apply, then kill the dead-man at work; what would start it again is done here by hand."""
    site = attempt.site
    lease_id, _ = apply_under(site, site.python, lease_s=60)
    claim(site, lease_id)
    words = expire_words(site, lease_id)
    with strace_killing(site, call) as python:
        site.run(python, *words, deadline_s=60)
    since_s = now_s()
    site.run(site.python, *words, deadline_s=60)
    return attempt.ended(str(call), since_s=since_s, left_s=0)


def expire_words(site: Site, lease_id: str) -> tuple[str, ...]:
    """Return the arguments by which the dead-man starts the agent."""
    agent = site.shell(f"ls -t {site.state}/agent/*.pyz").split()[0]
    return ("-I", "-S", agent, "expire", site.state, lease_id)


def killable_calls(site: Site) -> dict[str, tuple[CallKind, list[Call]]]:
    """Return each kind of killing with every call of an undisturbed run on this site."""
    acts = (kill_in_apply, kill_in_restore, kill_in_commit, kill_in_replace, kill_in_recovery)
    kinds = dict(zip(VERBS, acts, strict=True))
    return {
        f"kill -9 in {verb}": (kinds[verb], calls)
        for verb, calls in calls_by_verb(site, KILLABLE).items()
    }


def calls_by_verb(site: Site, traced: str) -> dict[str, list[Call]]:
    """Return the calls of an undisturbed run of each verb on this site."""
    held: list[str] = []

    def do_apply(python: str) -> None:
        held[:] = apply_under(site, python, lease_s=60)

    def do_restore(python: str) -> None:
        site.agent(python).restore(transaction=held[1])

    def do_commit(python: str) -> None:
        site.agent(python).commit(held[0])

    def do_expire(python: str) -> None:
        site.run(python, *expire_words(site, held[0]), deadline_s=60)

    found = {"apply": calls_of(site, do_apply, traced)}
    found["restore"] = calls_of(site, do_restore, traced)
    do_apply(site.python)
    found["commit"] = calls_of(site, do_commit, traced)
    do_restore(site.python)
    lease, first = site.lease(60), new_id()
    site.agent().apply(lease, first, site.steps(), site.contents())
    found["replace"] = calls_of(
        site, lambda python: replace_first(site, python, lease, first), traced
    )
    site.agent().release(lease.id)
    do_apply(site.python)
    claim(site, held[0])
    found["recovery"] = calls_of(site, do_expire, traced)
    return found
