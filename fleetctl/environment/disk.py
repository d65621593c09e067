"""Writing a file of this machine so that nothing but its content changes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fleetctl.errors import InputError


def read_file(path: Path) -> bytes:
    """Return the content of a regular file.

    Raises:
        InputError: it can't be read, or is a pipe or a device, which may never end.
    """
    if path.exists() and not path.is_file():
        raise _unreadable(path, "it is no regular file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(path, _said(error)) from error


def replace_file(path: Path, old: bytes | None, new: bytes) -> None:
    """Replace a file's content atomically, keeping mode, owner and extended attributes.

    A symbolic link stays a link: the file it points to is replaced. A file that did not
    exist gets mode 0644, its directories are made.

    Args:
        path: the file.
        old: the content the edit was made for, None for a file that must not exist yet.
        new: the content to write.

    Raises:
        InputError: the file is no longer what the edit was made for, has other names, or can't
            be written.
    """
    try:
        real = path.resolve()
        present = real.read_bytes() if real.exists() else None
        if present != old:
            raise _refused(path, "it changed while the edit was computed", "run the command again")
        if present is not None and real.stat().st_nlink > 1:
            why = "it has other names (hard links), which would keep the old content"
            raise _refused(path, why, f"`find -samefile {real}` shows them")
        real.parent.mkdir(parents=True, exist_ok=True)
        _replace(real, new, like=real if present is not None else None)
    except OSError as error:
        raise _refused(path, _said(error), "run it as the owner of the file") from error


def remove_file(path: Path) -> None:
    """Remove a file that fleetctl owns.

    Raises:
        InputError: it can't be removed.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(path, _said(error), "run it as the owner of the file") from error


def _replace(real: Path, new: bytes, *, like: Path | None) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{real.name}.", dir=real.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(new)
            _dress(file.fileno(), like)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(real)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    directory = os.open(real.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _dress(descriptor: int, like: Path | None) -> None:
    """Give the new file what the old one had beside its content."""
    if like is None:
        os.fchmod(descriptor, 0o644)
        return
    before = like.stat()
    mine = os.fstat(descriptor)
    if (before.st_uid, before.st_gid) != (mine.st_uid, mine.st_gid):
        os.fchown(descriptor, before.st_uid, before.st_gid)
    os.fchmod(descriptor, before.st_mode & 0o7777)
    for attribute in os.listxattr(like):
        os.setxattr(descriptor, attribute, os.getxattr(like, attribute))


def _unreadable(path: Path, why: str) -> InputError:
    return InputError(f"{path} can't be read", why=why, next_step="name a script or an env file")


def _said(error: OSError) -> str:
    return error.strerror or str(error)


def _refused(path: Path, why: str, next_step: str) -> InputError:
    return InputError(f"{path} was not edited", why=why, next_step=next_step)
