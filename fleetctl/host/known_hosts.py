"""known_hosts as OpenSSH reads it: plain and hashed names, patterns, ports, revoked keys, CAs.

Paramiko's own reader knows no patterns and silently skips marked lines,
so a revoked key would be trusted there.
"""

from __future__ import annotations

import base64
import binascii
import enum
import fcntl
import fnmatch
import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DEFAULT_PORT = 22


class Trust(enum.Enum):
    """What known_hosts says about a key that a host has shown."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    AUTHORITY_ONLY = "authority only"


@dataclass(frozen=True)
class HostKey:
    """A public key: its type word and its wire bytes."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-keygen -lf` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode()
        return f"SHA256:{digest.rstrip('=')}"

    @property
    def text(self) -> str:
        """Type and base64, as in a known_hosts line."""
        return f"{self.kind} {base64.b64encode(self.blob).decode()}"


@dataclass(frozen=True)
class Entry:
    """One line of a known_hosts file."""

    marker: str
    names: tuple[str, ...]
    key: HostKey
    where: str

    def covers(self, name: str) -> bool:
        """Say whether the line speaks about `name`, as `host` or `[host]:port`."""
        if len(self.names) == 1 and self.names[0].startswith("|"):
            return _is_hash_of(self.names[0], name)
        verdict = False
        for pattern in self.names:
            if fnmatch.fnmatchcase(name.lower(), _escape(pattern.removeprefix("!").lower())):
                if pattern.startswith("!"):
                    return False
                verdict = True
        return verdict


@dataclass(frozen=True)
class KnownHosts:
    """All entries of the files that are trusted, in order."""

    entries: tuple[Entry, ...]

    def judge(self, host: str, port: int, key: HostKey) -> tuple[Trust, tuple[Entry, ...]]:
        """Say what the files tell about a shown key, and which lines tell it."""
        named = [e for e in self.entries if e.covers(known_name(host, port))]
        # As OpenSSH: a line without a port vouches for any port, but never contradicts one.
        portless = [e for e in self.entries if e.covers(known_name(host, DEFAULT_PORT))]
        same = tuple(e for e in [*named, *portless] if e.key == key)
        revoked = tuple(e for e in same if e.marker == "@revoked")
        if revoked:
            return Trust.REVOKED, revoked
        if any(e.marker == "" for e in same):
            return Trust.KNOWN, same
        others = tuple(e for e in named if e.marker == "")
        if others:
            return Trust.CHANGED, others
        authorities = tuple(e for e in named if e.marker == "@cert-authority")
        return (Trust.AUTHORITY_ONLY if authorities else Trust.UNKNOWN), authorities

    def kinds(self, host: str, port: int) -> tuple[str, ...]:
        """Return the key types known for a host, so that it is asked for one of those first."""
        names = (known_name(host, port), known_name(host, DEFAULT_PORT))
        kinds = (e.key.kind for n in names for e in self.entries if not e.marker and e.covers(n))
        return tuple(dict.fromkeys(kinds))


def known_name(host: str, port: int) -> str:
    """Return how known_hosts writes a host: `host`, or `[host]:port` for an odd port."""
    return host if port == DEFAULT_PORT else f"[{host}]:{port}"


def parse(text: str, source: str) -> tuple[Entry, ...]:
    """Return the entries of one file; lines that make no sense are skipped, as OpenSSH does."""
    entries = (
        _parse_line(line, f"{source}:{number}")
        for number, line in enumerate(text.splitlines(), start=1)
    )
    return tuple(entry for entry in entries if entry is not None)


def load(paths: Iterable[Path]) -> KnownHosts:
    """Read the files that exist."""
    entries: list[Entry] = []
    for path in paths:
        if path.is_file():
            entries += parse(path.read_text(encoding="utf-8", errors="replace"), str(path))
    return KnownHosts(tuple(entries))


def learn(path: Path, host: str, port: int, key: HostKey, *, is_hashed: bool) -> None:
    """Append a host's first key to a file, once, whoever else appends at the same time."""
    name = known_name(host, port)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        text = stream.read()
        if any(e.key == key and e.covers(name) for e in parse(text, str(path))):
            return
        gap = "\n" if text and not text.endswith("\n") else ""
        stream.write(f"{gap}{_hashed(name) if is_hashed else name} {key.text}\n")


def _parse_line(line: str, where: str) -> Entry | None:
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if len(fields) < 3:
        return None
    try:
        blob = base64.b64decode(fields[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    return Entry(marker, tuple(fields[0].split(",")), HostKey(fields[1], blob), where)


def _escape(pattern: str) -> str:
    # known_hosts has only `*` and `?`; in fnmatch a bracket would begin a set.
    return pattern.replace("[", "[[]")


def _is_hash_of(field: str, name: str) -> bool:
    parts = field.split("|")
    if len(parts) != 4 or parts[1] != "1":
        return False
    try:
        salt, wanted = base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except binascii.Error:
        return False
    return hmac.compare_digest(hmac.digest(salt, name.lower().encode(), "sha1"), wanted)


def _hashed(name: str) -> str:
    salt = os.urandom(20)
    digest = hmac.digest(salt, name.lower().encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
