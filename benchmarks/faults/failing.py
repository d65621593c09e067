"""An error at the N-th system call of an apply, a restore, a commit or a recovery, by strace.

Unlike a kill, an error lets the agent answer, and what it answers must be true: a change that is
called applied is there whole, a host that is called as it was is so at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from benchmarks.faults.fault import Attempt, Fault, Kind, now_s
from benchmarks.faults.killing import (
    VERBS,
    Call,
    NotReached,
    calls_by_verb,
    claim,
    expire_words,
    replace_first,
    wrapper,
)
from benchmarks.faults.site import Look, Site, differences
from fleetctl.errors import (
    ExitCode,
    FleetError,
    HostError,
    InputError,
    InternalError,
    NotRestored,
    RemoteFailed,
)
from fleetctl.host.agent_client import new_id

LEASE_S = 20.0
RETRY_S = 5.0
LOOK_S = 3.0  # a watcher that finds no lease ends within a second
WRITING = ("ENOSPC", "EDQUOT", "EIO")
NAMING = ("EROFS", "EACCES", "EDQUOT", "EIO", "ENOSPC")
READING = ("EIO", "EACCES", "EMFILE")
ERRORS = {
    "openat": ("EACCES", "EMFILE", "EROFS", "EIO", "ENOSPC", "EDQUOT"),
    **dict.fromkeys(("write", "pwrite64", "fallocate", "fsync", "fdatasync", "ftruncate"), WRITING),
    **dict.fromkeys(("rename", "renameat", "renameat2", "link", "linkat"), NAMING),
    **dict.fromkeys(("mkdir", "mkdirat", "unlink", "unlinkat", "rmdir"), NAMING),
    **dict.fromkeys(("read", "pread64", "getdents64", "readlink", "readlinkat"), READING),
    **dict.fromkeys(("fchmod", "chmod", "fchown", "utimensat"), ("EPERM", "EROFS", "EIO")),
    **dict.fromkeys(("fsetxattr", "fremovexattr"), ("ENOSPC", "EDQUOT", "EPERM", "ENOTSUP")),
    **dict.fromkeys(("flistxattr", "fgetxattr"), ("EIO", "EACCES")),
    **dict.fromkeys(("fstat", "newfstatat", "fstatfs", "faccessat", "faccessat2"), ("EIO",)),
    "flock": ("ENOLCK", "EIO"),
    "ioctl": ("EIO",),
}
TRACED = ",".join(ERRORS)
AS_IT_WAS = (ExitCode.REFUSED, ExitCode.FAILED_RESTORED)


@dataclass(frozen=True)
class Failing:
    """One system call of a run, and the error it returns: once, or from then on."""

    call: Call
    error: str
    lasts: bool

    def __str__(self) -> str:
        return f"{self.call}{'+' if self.lasts else ''} {self.error}"


@contextmanager
def strace_failing(site: Site, failing: Failing) -> Iterator[str]:
    """Yield a python whose call returns an error; a run that never comes to it fails the fault."""
    call = failing.call
    when = f"{call.number}{'+' if failing.lasts else ''}"
    inject = f"-e inject={call.name}:error={failing.error}:when={when}"
    path = wrapper(site, call.name, inject)
    yield path
    log = site.run("cat", f"{path}.log").stdout
    site.run("rm", "-f", path, f"{path}.log")
    if b"(INJECTED)" not in log:
        raise NotReached(f"the run never came to {call}")


def failing_calls(site: Site, seed: int) -> Iterator[tuple[str, Failing, Kind]]:
    """Yield every call of each verb with one error of its kind; other seeds give other errors.

    Half of those that write or name go on failing, as on a disk that is full or went read-only.
    """
    acts = (fail_apply, fail_restore, fail_commit, fail_replace, fail_recovery)
    kinds = dict(zip(VERBS, acts, strict=True))
    for verb, calls in calls_by_verb(site, TRACED).items():
        answers = max(call.number for call in calls if call.name == "write")
        for index, call in enumerate(calls):
            if (call.name, call.number) != ("write", answers):  # of nothing the answer can tell
                errors = ERRORS[call.name]
                may_last = errors in (WRITING, NAMING) and call.name != "write"  # it must answer
                lasts = may_last and (index + seed) % 2 == 0
                failing = Failing(call, errors[(index + seed) % len(errors)], lasts)
                yield f"error in {verb}", failing, _at(kinds[verb], failing)


def _at(inject: Callable[[Attempt, Failing], Fault], failing: Failing) -> Kind:
    return lambda attempt: inject(attempt, failing)


def told(act: Callable[[], object]) -> FleetError | None:
    """Return what an act failed with; None where it says that it was done."""
    try:
        act()
    except FleetError as error:
        return error
    return None


def untrue(site: Site, before: Look, error: FleetError | None) -> list[str]:
    """Return what is not so of what an apply has answered."""
    if isinstance(error, InternalError):
        return [f"the host's trouble is told as a bug: {error.why}"]
    if isinstance(error, NotRestored):
        return []  # it says that the host is not back; who goes on trying is looked at next
    if isinstance(error, HostError) and not isinstance(error, RemoteFailed):
        return [f"the agent did not answer: {error}"]
    if isinstance(error, RemoteFailed):
        return [] if "goes back by itself" in error.next_step else [f"no answer: {error.why}"]
    if error is None:
        return _not_applied(site)
    if error.exit_code not in AS_IT_WAS:
        return [f"{type(error).__name__} {error.exit_code.name}: {error}"]
    _, wrong = site.wait_restored(before, since_s=now_s(), limit_s=LOOK_S)
    return [f"told {error.what!r}, and: {each}" for each in wrong]


def _not_applied(site: Site) -> list[str]:
    wrong = [
        f"called applied, and {name} is not the new one"
        for name in filter(None, (site.module, site.script))
        if not site.transport.get(f"{site.tree}/{name}").endswith(b"# changed\n")
    ]
    paths = ("obsolete.conf", "fresh/new.py")
    is_there = [site.run("test", "-e", f"{site.tree}/{path}").exit_code == 0 for path in paths]
    return wrong if is_there == [False, True] else [*wrong, f"{paths} are there: {is_there}"]


def back(site: Site, transaction: str) -> list[str]:
    """Roll back, and end what is left; return what goes wrong with it."""
    try:
        site.agent().restore(transaction=transaction)
    except InputError:
        pass  # the host holds nothing of it
    except FleetError as error:
        return [f"the rollback failed: {error}"]
    for held in site.agent().status().leases:
        site.agent().release(held.lease.id)
    return _open(site)


def _open(site: Site) -> list[str]:
    """Return what is not over, though nobody but us was there."""
    found = site.agent().status().transactions
    return [f"{held.state} in the end: {held.conflicts} {held.problem}" for held in found]


def fail_apply(attempt: Attempt, failing: Failing) -> Fault:
    """Fail a call of an apply."""
    site, transaction, lease = attempt.site, new_id(), attempt.site.lease(LEASE_S)
    with strace_failing(site, failing) as python:
        error = told(
            lambda: site.agent(python).apply(
                lease, transaction, site.steps(), site.contents(), deadline_s=60
            )
        )
    wrong = untrue(site, attempt.before, error)
    since_s = now_s()
    wrong += back(site, transaction)
    return attempt.ended(str(failing), since_s=since_s, left_s=RETRY_S, more_wrong=tuple(wrong))


def fail_restore(attempt: Attempt, failing: Failing) -> Fault:
    """Fail a call of a restore: it is done or it says that it is not, and is done the next time."""
    site, transaction = attempt.site, new_id()
    site.agent().apply(site.lease(LEASE_S), transaction, site.steps(), site.contents())
    with strace_failing(site, failing) as python:
        error = told(lambda: site.agent(python).restore(transaction=transaction))
    wrong = _untrue_restore(site, attempt.before, error)
    since_s = now_s()
    wrong += back(site, transaction)
    return attempt.ended(str(failing), since_s=since_s, left_s=RETRY_S, more_wrong=tuple(wrong))


def _untrue_restore(site: Site, before: Look, error: FleetError | None) -> list[str]:
    if error is None:
        now = {**site.look(), "left": []}  # a lease that could not be read ends by itself
        return [f"called restored, and: {each}" for each in differences(before, now)]
    if isinstance(error, NotRestored):
        return []
    return [f"{type(error).__name__} {error.exit_code.name}: {error}"]


def fail_commit(attempt: Attempt, failing: Failing) -> Fault:
    """Fail a call of a commit: kept, or told that it is not."""
    site, transaction, lease = attempt.site, new_id(), attempt.site.lease(LEASE_S)
    site.agent().apply(lease, transaction, site.steps(), site.contents())
    with strace_failing(site, failing) as python:
        error = told(lambda: site.agent(python).commit(lease.id, transaction=transaction))
    states = [held.state for held in site.agent().status().transactions]
    wrong = []
    if isinstance(error, InternalError):
        wrong.append(f"the host's trouble is told as a bug: {error.why}")
    if error is None and states != ["committed"]:
        wrong.append(f"called kept, and is {states}")
    since_s = now_s()
    wrong += back(site, transaction)
    return attempt.ended(str(failing), since_s=since_s, left_s=RETRY_S, more_wrong=tuple(wrong))


def fail_recovery(attempt: Attempt, failing: Failing) -> Fault:
    """Fail a call of the dead-man; its next try is made here by hand."""
    site, transaction, lease = attempt.site, new_id(), attempt.site.lease(60)
    site.agent().apply(lease, transaction, site.steps(), site.contents())
    claim(site, lease.id)
    words = expire_words(site, lease.id)
    with strace_failing(site, failing) as python:
        done = site.run(python, *words, deadline_s=60)
    wrong = []
    if done.exit_code == 0:
        wrong = [f"it said that it was done: {w}" for w in differences(attempt.before, site.look())]
    since_s = now_s()
    site.run(site.python, *words, deadline_s=60)
    wrong += _open(site)
    return attempt.ended(str(failing), since_s=since_s, left_s=0, more_wrong=tuple(wrong))


def fail_replace(attempt: Attempt, failing: Failing) -> Fault:
    """Fail a call of the apply that takes another one's place."""
    site, lease, first = attempt.site, attempt.site.lease(LEASE_S), new_id()
    site.agent().apply(lease, first, site.steps(), site.contents())
    with strace_failing(site, failing) as python:
        error = told(lambda: replace_first(site, python, lease, first))
    wrong = []
    if isinstance(error, InternalError):
        wrong.append(f"the host's trouble is told as a bug: {error.why}")
    if error is None:
        now = site.transport.get(f"{site.tree}/{site.module}")
        wrong += [] if now.endswith(b"# the other arm\n") else ["called applied, and is not"]
    since_s = now_s()
    for held in site.agent().status().leases:
        wrong += [f"the release failed: {told(partial(site.agent().release, held.lease.id))}"]
    wrong = [text for text in wrong if not text.endswith(": None")]
    wrong += _open(site)
    return attempt.ended(str(failing), since_s=since_s, left_s=RETRY_S, more_wrong=tuple(wrong))
