"""Transcripts on disk: compressed JSON lines, append-only, safe against a kill at any moment.

Each line is a gzip member of its own, written with one call: `zcat` reads the file, a killed
writer loses at most the line it was writing, and a full disk leaves the file as it was.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fleetctl.errors import FleetError, InputError
from fleetctl.trial.reasons import in_words

SUFFIX = ".jsonl.gz"
_READ_BYTES = 2**16
_COMPRESSION = 5
# a session holds 8 MiB at most, which JSON makes six times as long where all is control characters
_MOST_LINE_BYTES = 2**27


class TranscriptFailed(FleetError):
    """A transcript could not be written; what was written before is intact."""


class TranscriptSink(Protocol):
    """Where a trial's records go, one JSON object a line."""

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line durably enough to survive a kill of this process.

        Raises:
            TranscriptFailed: it could not be written; earlier lines are intact.
        """
        ...

    def close(self) -> None:
        """Write nothing more."""
        ...


class TranscriptStore(Protocol):
    """Opens a sink per client process; must survive pickling."""

    def open(self, shard: int) -> TranscriptSink:
        """Open the sink of one client process."""
        ...


@dataclass(frozen=True)
class TranscriptFolder:
    """Transcripts as files in a folder, one per client process.

    Attributes:
        path: the folder; made when missing.
    """

    path: Path

    def open(self, shard: int) -> TranscriptFile:
        """Open the file of one client process."""
        return TranscriptFile(self.path / f"transcripts.{shard}{SUFFIX}")

    def files(self) -> list[Path]:
        """Return the files in order."""
        return sorted(self.path.glob(f"transcripts.*{SUFFIX}"))


@dataclass(frozen=True)
class NoTranscripts:
    """A store that keeps nothing, for self-tests."""

    def open(self, shard: int) -> NoTranscripts:
        """Return itself."""
        del shard
        return self

    def write(self, line: Mapping[str, Any]) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Do nothing."""


class TranscriptFile:
    """An append-only transcript file; a torn end left by a killed writer is cut off first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._failing_clearly():
            path.parent.mkdir(parents=True, exist_ok=True)
            whole_bytes = _whole_bytes(path) if path.exists() else 0
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._end = whole_bytes
            os.ftruncate(self._file, whole_bytes)

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one line.

        Raises:
            TranscriptFailed: the disk is full or failing; the file is as it was before.
        """
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        member = gzip.compress(text, _COMPRESSION, mtime=0)
        with self._failing_clearly():
            try:
                self._write_all(member)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._end)
                raise
        self._end += len(member)

    def close(self) -> None:
        """Flush to the disk and close."""
        with self._failing_clearly():
            try:
                os.fsync(self._file)
            finally:
                os.close(self._file)

    def _write_all(self, member: bytes) -> None:
        done = 0
        while done < len(member):
            done += os.pwrite(self._file, member[done:], self._end + done)

    @contextlib.contextmanager
    def _failing_clearly(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TranscriptFailed(
                f"transcripts can't be written: {self._path}",
                why=error.strerror or str(error),
                next_step="make room or choose another folder with --out, then repeat the trial",
            ) from error


def read_transcripts(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a transcript file; a torn last line is left out.

    Raises:
        InputError: the file can't be read, or something before its end is damaged; what comes
            before that was yielded.
    """
    for start, member in _members(path):
        for line in member.splitlines():
            yield _line_of(path, start, line)


def _line_of(path: Path, start: int, line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, start, in_words(error)) from error
    if not isinstance(value, dict):
        raise _damaged(path, start, f"a line is a {type(value).__name__}, not a record")
    return value


def _whole_bytes(path: Path) -> int:
    """Return how many bytes of the file are whole members."""
    end = 0
    for start, member in _members(path):
        del member
        end = start
    return end


def _members(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each whole gzip member's end offset and content; a torn last one is left out."""
    try:
        with path.open("rb") as file:
            yield from _decompressed(path, file.read)
    except OSError as error:
        raise InputError(
            "a transcript can't be read",
            why=f"{path}: {in_words(error)}",
            next_step="check the path",
        ) from error


def _decompressed(path: Path, read: Any) -> Iterator[tuple[int, bytes]]:  # noqa: ANN401 - a file's read method
    start, fed, member = 0, 0, bytearray()
    inflate = zlib.decompressobj(wbits=31)
    waiting = b""
    while data := waiting or read(_READ_BYTES):
        waiting = b""
        try:
            member += inflate.decompress(data, _MOST_LINE_BYTES)
        except zlib.error as error:
            raise _damaged(path, start, "its compressed bytes can not be unpacked") from error
        if inflate.unconsumed_tail or len(member) > _MOST_LINE_BYTES:
            raise _damaged(path, start, f"more than {_MOST_LINE_BYTES >> 20} MiB in one piece")
        fed += len(data) - len(inflate.unused_data)
        if inflate.eof:
            yield fed, bytes(member)
            waiting, start, member = inflate.unused_data, fed, bytearray()
            inflate = zlib.decompressobj(wbits=31)


def _damaged(path: Path, at: int, why: str) -> InputError:
    return InputError(
        "a transcript is damaged",
        why=f"{path}, near byte {at}: {why}",
        next_step="the lines before it can still be read with `zcat`",
    )
