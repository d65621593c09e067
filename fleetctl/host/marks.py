"""A program's exact bytes, cut out of a stream in which start-up files may have printed too."""

from __future__ import annotations

import enum

# A login shell that prints more than this before it runs a command is not worth remembering whole.
NOISE_KEPT_BYTES = 4096


class Stage(enum.IntEnum):
    """How far a stream has come."""

    NOISE = 0
    BODY = 1
    ENDED = 2


class MarkedStream:
    """One output stream of a supervised program, fed piece by piece.

    Everything before the opening mark is noise, everything up to the closing one is the program's.
    A mark line is `mark`, its words, and a newline; the mark may follow other bytes directly.
    With the word `hello` it only greets; any other two words end the stream, opened or not.

    Attributes:
        stage: how far the stream has come.
        greeted: the supervisor runs and waits for its go-ahead.
        noise: the last bytes before the first mark.
        opening: the words of the mark line before the body.
        closing: the words of the mark line after the body.
    """

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._buffer = bytearray()
        self._searched = 0
        self.stage = Stage.NOISE
        self.greeted = False
        self.noise = b""
        self.opening: tuple[bytes, ...] = ()
        self.closing: tuple[bytes, ...] = ()

    @property
    def body(self) -> bytes:
        """The program's bytes so far; exact once the stage is ENDED."""
        return b"" if self.stage is Stage.NOISE else bytes(self._buffer)

    @property
    def size_bytes(self) -> int:
        """How much is held in memory."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take the next bytes; what follows the closing mark is dropped."""
        if self.stage is Stage.ENDED:
            return
        self._buffer += data
        while self._advance():
            pass
        if self.stage is Stage.NOISE:
            self._forget_old_noise()

    def forget_body(self) -> None:
        """Drop what was searched already: only the closing mark still matters."""
        if self.stage is Stage.BODY:
            del self._buffer[: self._searched]
            self._searched = 0

    def take_noise_up_to(self, word: bytes) -> bool:
        """Say whether the noise holds `word`, and drop it up to there if so."""
        found = self._buffer.find(word) if self.stage is Stage.NOISE else -1
        if found < 0:
            return False
        del self._buffer[: found + len(word)]
        self._searched = 0
        return True

    def _advance(self) -> bool:
        if self.stage is Stage.ENDED:
            return False
        start = self._buffer.find(self._mark, self._searched)
        if start < 0:
            self._searched = max(0, len(self._buffer) - len(self._mark) + 1)
            return False
        self._searched = start
        end = self._buffer.find(b"\n", start)
        if end < 0:
            return False
        self._searched = 0
        self._pass_mark(start, end)
        return True

    def _pass_mark(self, start: int, end: int) -> None:
        words = tuple(bytes(self._buffer[start + len(self._mark) : end]).split())
        if self.stage is Stage.NOISE and not self.greeted:
            self.noise = bytes(self._buffer[:start][-NOISE_KEPT_BYTES:])
        if words == (b"hello",):
            self.greeted = True
            del self._buffer[: end + 1]
        elif self.stage is Stage.NOISE and len(words) < 2:
            self.stage, self.opening = Stage.BODY, words
            del self._buffer[: end + 1]
        else:
            self.stage, self.closing = Stage.ENDED, words
            del self._buffer[start:]

    def _forget_old_noise(self) -> None:
        surplus = min(len(self._buffer) - NOISE_KEPT_BYTES, self._searched)
        if surplus > NOISE_KEPT_BYTES:
            del self._buffer[:surplus]
            self._searched -= surplus
        if not self.greeted:
            self.noise = bytes(self._buffer[-NOISE_KEPT_BYTES:])
