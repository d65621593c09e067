"""Install the agent and run a verb; sent to the host as text and run by its Python.

    python -c TEXT AGENT_DIRECTORY DIGEST VERB STATE   with the parcel, then the request, on stdin

Both forms stay: the directory starts faster, the zipapp beside it survives a power cut in one piece
and is what the host itself calls.
"""

import hashlib
import io
import os
import secrets
import sys
import zipfile

# a directory without agents may still be ours: a kill while it was forgotten leaves the rest
OURS = {"objects", "leases", "transactions", "scratch", "staging", "lost+found"}
OURS |= {"lock", "lease-lock", "made-wants", "unlocked"}


def main() -> None:
    """Receive, verify, install, and become the agent."""
    if sys.version_info < (3, 8):  # noqa: UP036 - this very text is what older ones run
        sys.exit("fleetctl needs Python 3.8 or newer on the host, not " + sys.version.split()[0])
    directory, digest, verb, state = sys.argv[1:]
    content = _receive()
    if hashlib.sha256(content).hexdigest() != digest:
        sys.exit("fleetctl: the agent was altered on its way")
    os.umask(0o077)
    _prepare(state, os.path.dirname(directory))
    if not os.path.isdir(directory):
        _unpack(content, directory)
    _write(directory + ".pyz", content)
    _sync(os.path.dirname(directory))
    os.execv(sys.executable, [sys.executable, "-I", "-S", directory, verb, state])  # noqa: S606


def _receive() -> bytes:
    """Return the parcel; what precedes its first line is noise, what follows is the request's."""
    line = b""
    while not line.startswith(b"fleetctl-agent "):
        line = b""
        while not line.endswith(b"\n"):
            line += _read(1)
    left, pieces = int(line.split()[1]), []
    while left:
        pieces.append(_read(min(left, 65536)))
        left -= len(pieces[-1])
    return b"".join(pieces)


def _read(most: int) -> bytes:
    piece = os.read(0, most)
    if not piece:
        sys.exit("fleetctl: the agent did not arrive whole")
    return piece


def _prepare(state: str, folder: str) -> None:
    is_new = not os.path.isdir(folder) and os.path.isdir(state) and os.access(state, os.R_OK)
    theirs = set(os.listdir(state)) - OURS if is_new else set()
    if theirs:
        sys.exit(f"fleetctl: {state} is no directory of fleetctl's, it holds {min(theirs)}")
    os.makedirs(state, 0o700, exist_ok=True)
    os.makedirs(folder, 0o700, exist_ok=True)
    for path in (state, folder):
        found = os.lstat(path)
        if os.path.islink(path) or found.st_uid != os.geteuid():
            sys.exit(f"fleetctl: {path} is not a directory of our own")
        os.chmod(path, 0o700)


def _unpack(content: bytes, directory: str) -> None:
    temp = f"{directory}.{secrets.token_hex(16)}"
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            path = os.path.join(temp, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _write(path, archive.read(name))
    for folder, _, _ in os.walk(temp):
        _sync(folder)
    try:
        os.rename(temp, directory)
    except OSError:
        if not os.path.isdir(directory):  # somebody else was first
            raise


def _write(path: str, content: bytes) -> None:
    """Write a file durably, under its final name in one step."""
    temp = f"{path}.{secrets.token_hex(16)}"
    with os.fdopen(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temp, path)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


if __name__ == "__main__":
    main()
