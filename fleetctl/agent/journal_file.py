"""The journal on disk: every entry proven, a fixed length, no growth when the disk is full.

A line is `NUMBER CHECKSUM JSON`, followed by two newlines, so that one flipped bit spoils one entry
and never two. The checksum covers the transaction's id and the number, so entries can be neither
moved nor mixed. The file is as long from the start as it will ever need to be, filled with zeros:
a shorter one was cut. The entries that end a transaction are written twice.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
import re
import secrets
import shutil
from dataclasses import dataclass

from fleetctl.agent.state import StateDir, sync_directory
from fleetctl.transaction import wire
from fleetctl.transaction.journal import (
    Committed,
    Conflicted,
    Entry,
    Opened,
    Reverted,
)

LINE = re.compile(rb"(\d+) ([0-9a-f]{32}) (.+)", re.DOTALL)
END = b"\n\n"
BYTES_PER_STEP = 256
BYTES_FOR_THE_END = 8192
WRITTEN_TWICE = (Committed, Conflicted, Reverted)


class Damage(enum.Enum):
    """What is wrong with a journal file."""

    NONE = "none"
    TORN = "torn"
    """The last write did not arrive whole: a power cut. The undo copes with it."""
    BROKEN = "broken"
    """Cut or altered: nothing is undone by itself on such evidence."""


@dataclass(frozen=True)
class Journal:
    """A journal as read.

    Attributes:
        entries: those proven intact, in order, up to the first that is not.
        damage: what is wrong.
        why: in words, when broken.
        end: offset behind the last intact entry.
        foreign: an intact entry of another version of fleetctl, which it alone understands.
    """

    entries: tuple[Entry, ...]
    damage: Damage
    why: str
    end: int
    foreign: bytes = b""


class OtherVersion(Exception):
    """An intact entry that this version of fleetctl does not understand."""


class JournalFile:
    """The journal of one transaction."""

    def __init__(self, state: StateDir, transaction: str) -> None:
        self._state = state
        self.transaction = transaction
        self.folder = state.path / "transactions" / transaction
        self.path = self.folder / "journal"

    def create(self, opened: Opened, by_hand: str) -> None:
        """Write a new journal, durably: the folder appears whole or not at all.

        Args:
            opened: the first entry.
            by_hand: a script for people that restores every file without fleetctl.
        """
        first = self._line(0, opened)
        folder = self._state.path / "scratch" / secrets.token_hex(16)
        folder.mkdir(mode=0o700)
        length = opened.journal_bytes
        self._state.write(folder / "journal", first + b"\0" * (length - len(first)))
        # a path on the host may hold bytes that are no UTF-8
        self._state.write(folder / "by-hand.sh", by_hand.encode(errors="surrogateescape"))
        sync_directory(folder)
        folder.rename(self.folder)
        sync_directory(self.folder.parent)

    def remove(self) -> None:
        """Remove the whole transaction, so that it vanishes in one step for whoever looks."""
        grave = self._state.path / "scratch" / secrets.token_hex(16)
        self.folder.rename(grave)
        shutil.rmtree(grave)

    def length_for(self, opened: Opened) -> int:
        """Return how long the journal of a transaction is to be."""
        per_step = BYTES_PER_STEP * 2 * len(opened.changes)
        return len(self._line(0, opened)) + per_step + BYTES_FOR_THE_END

    def read(self) -> Journal:
        """Return what the file proves."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return Journal((), Damage.BROKEN, "the journal is missing", 0)
        return parse(self.transaction, data)

    def append(self, *entries: Entry) -> None:
        """Write entries behind the intact ones, durably.

        Entries go to disk before what they announce is done.
        """
        journal = self.read()
        if journal.damage is Damage.BROKEN:
            raise ValueError(f"{self.path}: {journal.why}")
        number = len(journal.entries)
        copies = [e for entry in entries for e in _copies(entry)]
        lines = b"".join(self._line(number + i, entry) for i, entry in enumerate(copies))
        fd = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if journal.damage is Damage.TORN:
                lines = lines.ljust(os.fstat(fd).st_size - journal.end, b"\0")
            os.pwrite(fd, lines, journal.end)
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def _line(self, number: int, entry: Entry) -> bytes:
        return line(self.transaction, number, entry)


def line(transaction: str, number: int, entry: Entry) -> bytes:
    """Return an entry as it stands in the file."""
    text = json.dumps(wire.encode(entry, {}), separators=(",", ":")).encode()
    return b"%d %s %s" % (number, _checksum(transaction, number, text), text) + END


def _copies(entry: Entry) -> list[Entry]:
    return [entry, entry] if isinstance(entry, WRITTEN_TWICE) else [entry]


def _checksum(transaction: str, number: int, text: bytes) -> bytes:
    head = f"{transaction} {number} ".encode()
    return hashlib.sha256(head + text).hexdigest()[:32].encode()


def parse(transaction: str, data: bytes) -> Journal:
    """Return what the bytes of a journal file prove; never raises."""
    written = data.rstrip(b"\0")
    entries: list[Entry] = []
    end = 0
    while end < len(written):
        stop = written.find(b"\n", end)
        text = written[end:stop] if stop >= 0 else b""
        try:
            entry = _entry(transaction, len(entries), text)
        except OtherVersion as error:
            why = f"it was written by another version of fleetctl ({error})"
            return Journal(tuple(entries), Damage.BROKEN, why, end, text)
        if entry is not None:
            entries.append(entry)
        elif text or stop < 0:
            return _spoilt(transaction, entries, data, end)
        end = stop + 1
    return _complete(entries, Damage.NONE, len(data), end)


def _entry(transaction: str, number: int, text: bytes) -> Entry | None:
    found = LINE.fullmatch(text)
    if not found or int(found[1]) != number:
        return None
    if _checksum(transaction, number, found[3]) != found[2]:
        return None
    try:
        entry: Entry = wire.decode(json.loads(found[3]), {})
    except wire.WireError as error:
        raise OtherVersion(str(error)) from error
    return entry


def _spoilt(transaction: str, entries: list[Entry], data: bytes, end: int) -> Journal:
    """Tell a write that did not arrive whole from damage: nothing intact follows the former."""
    later = [LINE.fullmatch(text) for text in data[end:].split(b"\n")[1:]]
    if any(m and _checksum(transaction, int(m[1]), m[3]) == m[2] for m in later):
        why = f"entry {len(entries)} is altered (byte {end})"
        return Journal(tuple(entries), Damage.BROKEN, why, end)
    return _complete(entries, Damage.TORN, len(data), end)


def _complete(entries: list[Entry], damage: Damage, length: int, end: int) -> Journal:
    if not entries or not isinstance(entries[0], Opened):
        return Journal(tuple(entries), Damage.BROKEN, "the journal does not begin as one", end)
    if length < entries[0].journal_bytes:
        why = f"the journal was cut to {length} of {entries[0].journal_bytes} bytes"
        return Journal(tuple(entries), Damage.BROKEN, why, end)
    return Journal(tuple(entries), damage, "", end)
