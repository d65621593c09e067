"""Messages that survive noise: what login shells print around them is skipped.

A frame is `fleetctl-KIND NONCE HEADER_LENGTH BODY_LENGTH SHA256` on a line of its own, then the
body: a JSON header, then blobs whose sizes and digests the header lists.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Mapping

from fleetctl.transaction.wire import SCHEMA, WireError


@dataclass(frozen=True)
class Message:
    """A parsed frame.

    Attributes:
        nonce: of the request; its response carries the same.
        header: JSON data.
        blobs: contents by sha256, verified.
    """

    nonce: str
    header: dict[str, Any]
    blobs: Mapping[str, bytes]


def pack(kind: str, nonce: str, header: Mapping[str, object], blobs: Mapping[str, bytes]) -> bytes:
    """Return a frame; `kind` is `request` or `response`."""
    table = [[digest, len(blob)] for digest, blob in blobs.items()]
    text = json.dumps({**header, "schema": SCHEMA, "blobs": table}).encode()
    body = text + b"".join(blobs.values())
    head = f"fleetctl-{kind} {nonce} {len(text)} {len(body)}"
    return f"\n{head} {_digest(head.encode(), body)}\n".encode() + body


def unpack(kind: str, data: bytes, nonce: str = "") -> Message:
    """Return the first frame of a kind (and nonce, when given) in `data`.

    Raises:
        WireError: there is none, it is cut short, altered, or of another schema.
    """
    wanted = re.escape(nonce) if nonce else "[0-9a-f]{32}"
    pattern = rf"^(fleetctl-{kind} ({wanted}) (\d+) (\d+)) ([0-9a-f]{{64}})\n"
    found = re.search(pattern.encode(), data, re.MULTILINE)
    if not found:
        raise WireError(f"no {kind} in {len(data)} bytes")
    header_length, body_length = int(found[3]), int(found[4])
    body = data[found.end() : found.end() + body_length]
    if _digest(found[1], body) != found[5].decode():
        raise WireError(f"the {kind} was cut short or altered on its way")
    header = json.loads(body[:header_length])
    if header.pop("schema", None) != SCHEMA:
        raise WireError("the other side speaks another version")
    return Message(found[2].decode(), header, _blobs(header.pop("blobs"), body[header_length:]))


def _digest(head: bytes, body: bytes) -> str:
    return hashlib.sha256(head + b"\n" + body).hexdigest()


def _blobs(table: Any, data: bytes) -> dict[str, bytes]:  # noqa: ANN401 - JSON has no type
    blobs = {}
    start = 0
    for digest, length in table:
        blob = data[start : start + length]
        if hashlib.sha256(blob).hexdigest() != digest:
            raise WireError(f"content does not match its digest {digest}")
        blobs[digest] = blob
        start += length
    return blobs
