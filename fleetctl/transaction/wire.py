"""Steps, entries, snapshots and outcomes <-> JSON, with a schema number.

A dataclass becomes an object whose `@` is its class name; bytes become a reference into a
table of blobs that travels beside the JSON. Only the classes listed here can be read.
"""

from __future__ import annotations

import dataclasses
import hashlib
from types import ModuleType
from typing import Any, Mapping, TypeVar

from fleetctl.transaction import code, image, journal, lease, outcome, snapshot, step, telemetry

SCHEMA = 1
"""Counts up whenever an older agent or journal could misread a newer one."""

TAG = "@"

T = TypeVar("T")


class WireError(ValueError):
    """Bytes that are no message of ours."""


def _defined_in(*modules: ModuleType) -> dict[str, type[Any]]:
    values = [value for module in modules for value in vars(module).values()]
    names = {module.__name__ for module in modules}
    kinds = [v for v in values if dataclasses.is_dataclass(v) and isinstance(v, type)]
    return {kind.__name__: kind for kind in kinds if kind.__module__ in names}


KINDS = {
    **_defined_in(image, step, lease, snapshot, outcome, code, telemetry),
    **{f"journal.{name}": kind for name, kind in _defined_in(journal).items()},
}
NAMES = {kind: name for name, kind in KINDS.items()}


def encode(value: object, blobs: dict[str, bytes]) -> Any:  # noqa: ANN401 - JSON has no type
    """Return `value` as JSON data; bytes are put into `blobs` under their sha256."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: encode(getattr(value, f.name), blobs) for f in dataclasses.fields(value)}
        return {TAG: NAMES[type(value)], **fields}
    if isinstance(value, bytes):
        digest = hashlib.sha256(value).hexdigest()
        blobs[digest] = value
        return {"blob": digest}
    if isinstance(value, (list, tuple)):
        return [encode(item, blobs) for item in value]
    if isinstance(value, dict):
        return {"map": {key: encode(item, blobs) for key, item in value.items()}}
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise WireError(f"cannot be sent: {type(value).__name__}")


def decode(data: Any, blobs: Mapping[str, bytes]) -> Any:  # noqa: ANN401 - JSON has no type
    """Return the value that `encode` was given; lists come back as tuples.

    Raises:
        WireError: an unknown kind or field, a missing blob, a value a class refuses.
    """
    if isinstance(data, list):
        return tuple(decode(item, blobs) for item in data)
    if not isinstance(data, dict):
        return data
    if TAG in data:
        return _decode_dataclass(data, blobs)
    if "blob" in data:
        return _blob(str(data["blob"]), blobs)
    return {key: decode(item, blobs) for key, item in data["map"].items()}


def decode_as(kind: type[T], data: Any, blobs: Mapping[str, bytes]) -> T:  # noqa: ANN401 - JSON
    """Return the decoded value, which must be a `kind`.

    Raises:
        WireError: it is something else.
    """
    value = decode(data, blobs)
    if not isinstance(value, kind):
        raise WireError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value


def _blob(digest: str, blobs: Mapping[str, bytes]) -> bytes:
    if digest not in blobs:
        raise WireError(f"missing blob {digest}")
    return blobs[digest]


def _decode_dataclass(data: dict[str, Any], blobs: Mapping[str, bytes]) -> object:
    kind = KINDS.get(str(data[TAG]))
    if kind is None:
        raise WireError(f"unknown kind: {data[TAG]!r}")
    fields = {name: decode(item, blobs) for name, item in data.items() if name != TAG}
    try:
        return kind(**fields)
    except (TypeError, ValueError) as error:
        raise WireError(f"not a {kind.__name__}: {error}") from error
