"""Faults of the host itself: its disk, its clock, its unit, and the people who work on it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

from benchmarks.faults.fault import Attempt, Fault, now_s
from benchmarks.faults.killing import NotReached
from benchmarks.faults.outside import background
from benchmarks.faults.site import Site
from fleetctl.errors import ApplyFailed, ExitCode, FleetError, RestoreConflict
from fleetctl.host.agent_client import new_id
from fleetctl.transaction.step import RestartUnit, Step

LEASE_S = 3.0
RETRY_S = 5.0
FILL = "dd if=/dev/zero of=/fill bs=64k 2>/dev/null; dd if=/dev/zero of=/fill2 bs=512 2>/dev/null"
JUMP = """\
#!/bin/sh
# a python whose wall clock is {jump_s} s off; arguments are: -I -S AGENT VERB STATE
exec "{python}" -I -S -c 'import runpy, sys, time
real = time.time
time.time = lambda: real() + ({jump_s})
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")' "$@"
"""
STUBBORN = b"#!/bin/bash\ntrap '' TERM\nwhile :; do sleep 0.2; done\n"
LOOPING = b"#!/bin/bash\necho boom >&2\nexit 3\n"
MISSING = b"#!/no/such/interpreter\n"


def applied(attempt: Attempt, *, lease_s: float = LEASE_S, steps: list[Step] | None = None) -> str:
    """Apply and return the transaction."""
    site, transaction = attempt.site, new_id()
    plan = site.steps() if steps is None else steps
    contents = site.contents(STUBBORN, LOOPING, MISSING)
    site.agent().apply(site.lease(lease_s), transaction, plan, contents)
    return transaction


def fill_disk_before(attempt: Attempt) -> Fault:
    """Apply on a full disk: refused before the first change."""
    site = attempt.site
    site.shell(FILL, deadline_s=60)
    wrong: tuple[str, ...] = ("it was not refused",)
    try:
        applied(attempt)
    except FleetError as error:
        refused = error.exit_code is ExitCode.REFUSED
        wrong = () if refused else (f"exit code {error.exit_code}: {error}",)
    site.shell("rm -f /fill /fill2")
    return attempt.ended("before the apply", since_s=now_s(), left_s=LEASE_S, more_wrong=wrong)


def fill_disk_after(attempt: Attempt) -> Fault:
    """Fill the disk after an apply; the restore has its space reserved."""
    site = attempt.site
    applied(attempt, lease_s=LEASE_S + 3)
    site.shell(FILL, deadline_s=60)
    since_s = now_s()
    fault = attempt.ended("after the apply", since_s=since_s, left_s=LEASE_S + 3)
    site.shell("rm -f /fill /fill2")
    return fault


def fill_disk_during(attempt: Attempt) -> Fault:
    """Fill the disk at some moment of an apply: done or undone, then restored."""
    site = attempt.site
    delay_s = attempt.dice.uniform(0, 0.6)
    site.shell(f"systemd-run --quiet --collect sh -c 'sleep {delay_s}; {FILL}'")
    with suppress(FleetError):
        applied(attempt)
    since_s = now_s()
    fault = attempt.ended(f"after {delay_s:.2f} s", since_s=since_s, left_s=LEASE_S + 5)
    site.shell("rm -f /fill /fill2")
    return fault


def make_read_only(attempt: Attempt) -> Fault:
    """Make the tree read-only after an apply; once it can be written again it is restored."""
    site = attempt.site
    applied(attempt)
    tree = site.tree
    site.shell(f"mount --bind {tree} {tree} && mount -o remount,bind,ro {tree}")
    time.sleep(LEASE_S + attempt.dice.uniform(0.5, 3))
    site.shell(f"umount {tree}")
    return attempt.ended("after the apply", since_s=now_s(), left_s=RETRY_S)


def apply_read_only(attempt: Attempt) -> Fault:
    """Apply to a read-only tree: refused before the first change."""
    site = attempt.site
    tree = site.tree
    site.shell(f"mount --bind {tree} {tree} && mount -o remount,bind,ro {tree}")
    wrong: tuple[str, ...] = ("it was not refused",)
    try:
        applied(attempt)
    except FleetError as error:
        refused = error.exit_code is ExitCode.REFUSED
        wrong = () if refused else (f"exit code {error.exit_code}: {error}",)
    site.shell(f"umount {tree}")
    return attempt.ended("before the apply", since_s=now_s(), left_s=LEASE_S, more_wrong=wrong)


def make_immutable(attempt: Attempt) -> Fault:
    """Make a changed file immutable; once it is not any more it is restored."""
    site = attempt.site
    applied(attempt)
    name = attempt.dice.choice([site.module, site.script])
    site.shell(f"chattr +i {site.tree}/{name}")
    time.sleep(LEASE_S + attempt.dice.uniform(0.5, 3))
    site.shell(f"chattr -i {site.tree}/{name}")
    return attempt.ended(name, since_s=now_s(), left_s=RETRY_S)


def jump_clock(attempt: Attempt) -> Fault:
    """Set the agent's wall clock years off while it applies; the lease ends on time still."""
    site = attempt.site
    jump_s = attempt.dice.choice([-1, 1]) * attempt.dice.choice([30, 3600, 86400, 400_000_000])
    path = f"{site.state}-python"
    text = JUMP.format(jump_s=jump_s, python=site.python)
    site.transport.put(text.encode(), path, mode=0o755)
    asked_s, lease_s = now_s(), 2 * LEASE_S
    site.agent(path).apply(site.lease(lease_s), new_id(), site.steps(), site.contents())
    since_s = now_s()
    time.sleep(LEASE_S * 0.5)
    site.shell(f"rm {path}")
    is_restored = site.look()["files"] == attempt.before["files"]
    is_early = now_s() < asked_s + lease_s  # a slow machine may look when the lease is over
    wrong = ("the lease ended before its time",) if is_restored and is_early else ()
    return attempt.ended(f"{jump_s:+d} s", since_s=since_s, left_s=lease_s, more_wrong=wrong)


def never_stop(attempt: Attempt) -> Fault:
    """Deploy a service that ignores SIGTERM; the restore gets rid of it all the same."""
    site = attempt.site
    steps: list[Step] = [site.write(site.script, STUBBORN), RestartUnit(site.unit, 0.3, 2.0)]
    applied(attempt, steps=steps)
    return attempt.ended("the new service", since_s=now_s(), left_s=LEASE_S + 2.0)


def hang_before(attempt: Attempt) -> Fault:
    """Apply while the service found there hangs and never stops: a named failure, and undone."""
    site = attempt.site
    script = f"{site.tree}/{site.script}"
    change = site.write(site.module, site.originals[site.module] + b"\n# changed\n")
    site.shell(f"cp -a {script} /root/kept; systemctl stop {site.unit}")
    site.transport.put(STUBBORN, script, mode=0o755)
    site.shell(f"systemctl start {site.unit}; sleep 0.5")
    stubborn = replace(attempt, before=site.look())
    wrong: tuple[str, ...] = ("it was not told",)
    try:
        applied(attempt, steps=[change, RestartUnit(site.unit, 0.3, 1.5)])
    except ApplyFailed as error:
        wrong = () if "did not stop" in error.why else (error.why,)
    fault = stubborn.ended("the old service", since_s=now_s(), left_s=LEASE_S, more_wrong=wrong)
    kill = f"systemctl kill --signal=KILL {site.unit}"
    site.shell(f"cp -a /root/kept {script}; rm /root/kept; {kill}; systemctl restart {site.unit}")
    return fault


def mask_unit(attempt: Attempt) -> Fault:
    """Mask the unit after an apply; once it is unmasked the host is restored."""
    site = attempt.site
    applied(attempt)
    file = f"/etc/systemd/system/{site.unit}"
    site.shell(f"mv {file} /root/kept.service && systemctl mask {site.unit}")
    time.sleep(LEASE_S + attempt.dice.uniform(0.5, 3))
    site.shell(
        f"systemctl unmask {site.unit}; mv /root/kept.service {file}; systemctl enable {site.unit}"
    )
    return attempt.ended("after the apply", since_s=now_s(), left_s=RETRY_S + 1)


def bad_service(attempt: Attempt) -> Fault:
    """Deploy a script that cannot run or keeps dying: noticed in seconds, and undone."""
    site = attempt.site
    name, content = attempt.dice.choice([("crash loop", LOOPING), ("missing binary", MISSING)])
    steps: list[Step] = [site.write(site.script, content), RestartUnit(site.unit, 1.0, 5.0)]
    wrong: tuple[str, ...] = ("it was not told",)
    since_s = now_s()
    try:
        applied(attempt, steps=steps)
    except ApplyFailed as error:
        told = getattr(error, "log_lines", ())
        wrong = () if told else ("no log lines",)
    return attempt.ended(name, since_s=since_s, left_s=LEASE_S, more_wrong=wrong)


def kill_service(attempt: Attempt) -> Fault:
    """SIGKILL the service at some moment, as the kernel does when memory runs out."""
    site = attempt.site
    delay_s = attempt.dice.uniform(0, 2.0)
    kill = f"kill -KILL $(systemctl show -p MainPID --value {site.unit})"
    site.shell(f"systemd-run --quiet --collect sh -c 'sleep {delay_s}; {kill}'")
    with suppress(FleetError):
        applied(attempt)
    return attempt.ended(f"after {delay_s:.2f} s", since_s=now_s(), left_s=LEASE_S)


def edit_by_hand(attempt: Attempt) -> Fault:
    """Edit a changed file: the edit stays, all else comes back, and force decides."""
    site, lease_s = attempt.site, 2 * LEASE_S
    transaction = applied(attempt, lease_s=lease_s)
    path = f"{site.tree}/{site.script}"
    site.shell(f"cp -a {path} /root/applied; echo '# by hand' >> {path}")
    if not any(held.id == transaction for held in site.agent().status().transactions):
        site.shell(f"cp -a /root/applied {path}")  # a slow machine: the lease was over before
        raise NotReached(f"{transaction} was over before the edit")
    since_s = now_s()
    while site.agent().status().leases and now_s() - since_s < lease_s + 8:
        time.sleep(0.2)
    wrong = _edit_is_kept(site, transaction, attempt)
    since_s = now_s()
    try:
        site.agent().restore(transaction=transaction, force=True)
    except RestoreConflict as left:
        wrong = (*wrong, f"not forced: {left}")
    return attempt.ended("after the apply", since_s=since_s, left_s=0, more_wrong=wrong)


def _edit_is_kept(site: Site, transaction: str, attempt: Attempt) -> tuple[str, ...]:
    now = site.look()
    wrong = []
    if not site.transport.get(f"{site.tree}/{site.script}").endswith(b"# by hand\n"):
        wrong.append("the edit was overwritten")
    states = {held.id: held.state for held in site.agent().status().transactions}
    if states.get(transaction) != "conflict":
        wrong.append(f"the conflict is not told: {states}")
    old, new = attempt.before["files"], now["files"]
    assert isinstance(old, dict)
    assert isinstance(new, dict)
    others = [name for name in {*old, *new} if old.get(name) != new.get(name)]
    if others != [site.script]:
        wrong.append(f"not back: {others}")
    return tuple(wrong)


def edit_during(attempt: Attempt) -> Fault:
    """Edit a file at some moment of an apply: whatever comes of it, the edit is never lost."""
    site = attempt.site
    path = f"{site.tree}/{site.script}"
    delay_s = attempt.dice.uniform(0, 0.5)
    site.shell(f"cp -a {path} /root/kept")
    edit = f'sleep {delay_s}; echo "# by hand" >> {path}'
    thread = background(lambda: site.shell(edit))
    transaction = new_id()
    with suppress(FleetError):
        site.agent().apply(site.lease(1.0), transaction, site.steps(), site.contents())
    thread.join()
    since_s = now_s()
    while site.agent().status().leases and now_s() - since_s < 10:
        time.sleep(0.2)
    kept = b"# by hand\n" in site.transport.get(path)
    wrong = () if kept else ("the edit was lost",)
    site.shell(f"cp -a /root/kept {path}; rm /root/kept")
    with suppress(FleetError):
        site.agent().restore(transaction=transaction, force=True)
    site.shell(f"systemctl restart {site.unit}")
    return attempt.ended(f"after {delay_s:.2f} s", since_s=since_s, left_s=10, more_wrong=wrong)
