"""Server-sent events from bytes, however the network cut them.

Source: WHATWG HTML, 9.2.6 "Interpreting an event stream". Lines end with LF, CRLF or CR; a blank
line ends an event; lines that start with a colon are comments; only `data` matters here, and the
`error` field in which older builds of llama.cpp tell what went wrong.
"""

from __future__ import annotations

import json

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SseParser:
    """Turns chunks of bytes into events; the same events for every way of cutting the bytes.

    It holds at most the bytes of one unfinished event; `pending_bytes` lets the caller bound it.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces of a line that has not ended
        self._data: list[bytes] = []  # data lines of an event that has not ended
        self._after_cr = False
        self._started = False

    @property
    def pending_bytes(self) -> int:
        """Bytes of an event that has not ended yet."""
        return sum(map(len, self._rest)) + sum(map(len, self._data))

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of the events they completed."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if self._is_plain(chunk):
            self._started = True
            return [event[6:] for event in chunk[:-2].split(b"\n\n")]
        if b"\n" not in chunk and b"\r" not in chunk:
            if chunk:
                self._rest.append(chunk)
            return []
        return self._take_lines(b"".join((*self._rest, chunk)))

    def finish(self) -> tuple[list[bytes], bytes]:
        """Return what is left at the end of the stream: whole events, and bytes that are none.

        An event without its final blank line is accepted when its data is `[DONE]` or JSON:
        some servers end their stream that way.
        """
        line = b"".join(self._rest)
        data = b"\n".join([*self._data, *([_value(line)] if line.startswith(b"data:") else [])])
        if data and _is_whole(data):
            return [data], b""
        whole_lines = [b"data: " + each for each in self._data]
        return [], b"\n".join([*whole_lines, *([line] if line else [])])

    def _is_plain(self, chunk: bytes) -> bool:
        """Tell the common case: whole one-line events and nothing pending."""
        if self._rest or self._data or b"\r" in chunk:
            return False
        if not (chunk.startswith(b"data: ") and chunk.endswith(b"\n\n")):
            return False
        events = chunk.count(b"\n\n")
        return chunk.count(b"\n") == 2 * events and chunk.count(b"\n\ndata: ") == events - 1

    def _take_lines(self, text: bytes) -> list[bytes]:
        if not self._started:
            self._started = True
            text = text.removeprefix(BYTE_ORDER_MARK)
        lines = text.splitlines(keepends=True)
        self._after_cr = text.endswith(b"\r")
        self._rest = [] if text.endswith((b"\r", b"\n")) else [lines.pop()]
        events: list[bytes] = []
        for line in lines:
            bare = line.rstrip(b"\r\n")
            if bare == b"data" or bare.startswith(b"data:"):
                self._data.append(_value(bare))
            elif bare.startswith(b"error:"):
                self._data.append(_error(bare))
            elif not bare and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events


def _error(line: bytes) -> bytes:
    """Return the data that newer builds send for the same error."""
    return b'{"error": %s}' % line[6:].strip()


def _value(line: bytes) -> bytes:
    return line[5:].removeprefix(b" ")


def _is_whole(data: bytes) -> bool:
    if data.strip() == b"[DONE]":
        return True
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
