"""What a lease tells agents with another state directory: two of them never work on one unit.

Leases lie in the state directory, and two users of a host have two (or two of `FLEETCTL_STATE`). So
each lease also leaves a claim where every user of the host can read it; it goes away with the boot.
A claim counts as long as its lease is there, or as long as nobody who asks may look.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Collection, Iterator

from fleetctl.agent.host_clock import HostClock
from fleetctl.agent.leases import SUFFIXES
from fleetctl.agent.state import StateDir, write_all
from fleetctl.transaction.lease import IDENTIFIER, Lease

ROOTS = Path("/run/fleetctl")
EVERYBODYS = (Path("/run/lock"), Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - sticky; names are random
PREFIX = "fleetctl-lease-"
MOST_BYTES = 4 * 1024 * 1024  # a tree has thousands of files, and half a claim is none
LAST_S = 1e11  # in the year 5138: some more, and no calendar has it
NOWHERE = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP}


@dataclass(frozen=True)
class Claim:
    """A lease, as others see it.

    Attributes:
        lease: who, which run, why.
        unit: what tells the unit from every other on this machine; empty for none.
        paths: real paths of the files that are changed under it.
        state: the state directory that the lease lies in.
        boot_id: of the boot it was made in.
    """

    lease: Lease
    unit: str
    paths: tuple[str, ...]
    state: str
    boot_id: str


class Claims:
    """The claims of one state directory, and a view of those of all others."""

    def __init__(self, state: StateDir, clock: HostClock) -> None:
        self._state = state
        self._clock = clock

    def make(self, lease: Lease, unit: str) -> None:
        """Leave a claim; without a place that all users share there is none.

        Raises:
            OSError: it cannot be written.
        """
        state = os.path.realpath(self._state.path)
        self._write(Claim(lease, unit, (), state, self._clock.boot_id()))

    def has(self, lease_id: str) -> bool:
        """Tell whether a lease has its claim; its agent may have been killed before it left one."""
        return bool(self._own(lease_id))

    def extend(self, lease_id: str, paths: Collection[str]) -> None:
        """Claim files, too, on top of those that are claimed.

        Raises:
            OSError: it cannot be written.
        """
        for claim in self._own(lease_id):
            named = tuple(sorted({*claim.paths, *paths}))
            self._write(dataclasses.replace(claim, paths=named))

    def drop(self, lease_id: str) -> None:
        """Take a claim back; one that is gone is fine."""
        for folder in _folders():
            with contextlib.suppress(OSError):
                self._path(folder, lease_id).unlink()
        _tidy()

    def drop_all_but(self, lease_ids: Collection[str]) -> None:
        """Take back the claims of leases that are over."""
        ours = os.path.realpath(self._state.path)
        for path, claim in _all():
            if claim.state == ours and claim.lease.id not in lease_ids:
                # this very file: a forged one may name a lease of somebody else
                with contextlib.suppress(OSError):
                    path.unlink()
        _tidy()

    def others(self) -> tuple[Claim, ...]:
        """Return the live claims of other state directories; removes those that are over."""
        ours, boot_id = os.path.realpath(self._state.path), self._clock.boot_id()
        found = []
        for path, claim in _all():
            if claim.state == ours:
                continue
            if claim.boot_id == boot_id and _may_live(claim):
                found.append(claim)
            else:
                with contextlib.suppress(OSError):  # another user's; it does no harm
                    path.unlink()
        return tuple(found)

    def _own(self, lease_id: str) -> list[Claim]:
        """Return what we left for a lease; what others put under its name is not believed."""
        ours = os.path.realpath(self._state.path)
        found = (_read(self._path(f, lease_id), owner=os.geteuid()) for f in _folders())
        return [c for c in found if c is not None and (c.state, c.lease.id) == (ours, lease_id)]

    def _write(self, claim: Claim) -> None:
        """Write a claim whole, under its name at once: half of one would count for none."""
        folder = _place()
        if folder is None:
            return
        temp = folder / f".{PREFIX}{secrets.token_hex(16)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            fd = os.open(temp, flags, 0o644)
        except FileNotFoundError:  # the end of somebody's last lease removed the directory just now
            _place()
            fd = os.open(temp, flags, 0o644)
        try:
            write_all(fd, json.dumps(dataclasses.asdict(claim)).encode())
            os.fchmod(fd, 0o644)  # whatever the umask
            temp.rename(self._path(folder, claim.lease.id))
        except BaseException:
            temp.unlink()
            raise
        finally:
            os.close(fd)

    def _path(self, folder: Path, lease_id: str) -> Path:
        return folder / (lease_id if folder == ROOTS else f"{PREFIX}{os.geteuid()}-{lease_id}")


def _tidy() -> None:
    with contextlib.suppress(OSError):  # it never existed, or other leases live
        ROOTS.rmdir()


def _folders() -> tuple[Path, ...]:
    return (ROOTS, *EVERYBODYS)


def _place() -> Path | None:
    """Return where this user leaves claims; a container may have no /run that can be written."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            ROOTS.mkdir(mode=0o755, exist_ok=True)
            ROOTS.chmod(0o755)
            return ROOTS
    return next((folder for folder in EVERYBODYS if _is_everybodys(folder)), None)


def _is_everybodys(folder: Path) -> bool:
    """Tell whether all may write here, and nobody may remove what others wrote."""
    wanted = stat.S_IWOTH | stat.S_ISVTX
    try:
        return folder.stat().st_mode & wanted == wanted and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False


def _all() -> Iterator[tuple[Path, Claim]]:
    for folder in _folders():
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in sorted(names):
            if name.startswith(PREFIX) or folder == ROOTS:
                claim = _read(folder / name)
                if claim is not None:
                    yield folder / name, claim


def _read(path: Path, *, owner: int | None = None) -> Claim | None:
    """Return a claim; None for what is none, or not its owner's, whoever put it there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or owner not in (None, found.st_uid):
            return None
        return _parsed(os.read(fd, MOST_BYTES))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None
    finally:
        os.close(fd)


def _parsed(text: bytes) -> Claim:
    data = json.loads(text)
    lease = Lease(**data["lease"])
    words = (lease.id, lease.run_id, lease.holder, lease.purpose, lease.unit)
    if not all(isinstance(word, str) for word in words) or not IDENTIFIER.fullmatch(lease.id):
        raise ValueError("not a lease")
    lease = dataclasses.replace(
        lease, since_s=_time_s(lease.since_s), until_s=_time_s(lease.until_s)
    )
    paths = tuple(str(path) for path in data["paths"])
    return Claim(lease, str(data["unit"]), paths, str(data["state"]), str(data["boot_id"]))


def _time_s(told: object) -> float:
    """Return a time that a calendar has, whatever was told."""
    if not isinstance(told, (int, float)) or not 0 <= told < LAST_S:
        raise ValueError("not a time")
    return float(told)


def _may_live(claim: Claim) -> bool:
    """Tell whether the lease of a claim is there, or nobody lets us look."""
    for suffix in SUFFIXES:
        try:
            os.lstat(f"{claim.state}/leases/{claim.lease.id}{suffix}")
        except ValueError:  # no path has such characters
            return False
        except OSError as error:
            if error.errno in NOWHERE:
                continue
            return True
        return True
    return False
