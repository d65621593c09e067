"""Planted values: opaque, unique, and traceable to the session that owns them.

A value looks like `ZK-4417-Q`. Within a run, values are the image of a keyed bijection of
(session, slot): two sessions can never hold the same value, adding a session changes no other's
values, and a value found in a wrong place can be traced to its owner without a table.

The bijection is a four-round Feistel network over 28 bits with cycle walking to the size of the
value space. Source: Black & Rogaway, Ciphers with arbitrary finite domains (CT-RSA 2002), 3.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from string import ascii_uppercase

VALUE_PATTERN = re.compile(r"(?<![A-Z0-9-])[A-Z]{2}-[0-9]{4}-[A-Z](?![A-Z0-9-])")

_SPACE = 26 * 26 * 10_000 * 26
_HALF_BITS = 14
_HALF_MASK = (1 << _HALF_BITS) - 1
_ROUNDS = 4
_SLOT_BITS = 7

MAX_SLOTS = 1 << _SLOT_BITS
MAX_SESSIONS = 1 << 20


@dataclass(frozen=True)
class Owner:
    """Who owns a planted value: a session of a run, and which of its values it is."""

    run_index: int
    session: int
    slot: int


def planted_value(root_seed: int, run_index: int, session: int, slot: int) -> str:
    """Return the value of one slot of one session."""
    key = _key(root_seed, run_index)
    number = _permute((session << _SLOT_BITS) | slot, key)
    while number >= _SPACE:
        number = _permute(number, key)
    return _spell(number)


def owner_of(value: str, root_seed: int, run_index: int) -> Owner | None:
    """Return whose value this is in a run, or None when it isn't shaped like one.

    Almost every well-shaped text has an owner somewhere in the space of 2^27 (session, slot)
    pairs: the caller compares with the number of sessions and slots that really took part.
    """
    if VALUE_PATTERN.fullmatch(value) is None:
        return None
    key = _key(root_seed, run_index)
    number = _unpermute(_read(value), key)
    while number >= _SPACE:
        number = _unpermute(number, key)
    return Owner(run_index, number >> _SLOT_BITS, number & (MAX_SLOTS - 1))


def _key(root_seed: int, run_index: int) -> bytes:
    return hashlib.blake2b(f"planted:{root_seed}:{run_index}".encode(), digest_size=16).digest()


def _mix(half: int, step: int, key: bytes) -> int:
    digest = hashlib.blake2b(bytes((step, half >> 8, half & 255)), key=key, digest_size=2).digest()
    return int.from_bytes(digest, "big") & _HALF_MASK


def _permute(number: int, key: bytes) -> int:
    left, right = number >> _HALF_BITS, number & _HALF_MASK
    for step in range(_ROUNDS):
        left, right = right, left ^ _mix(right, step, key)
    return left << _HALF_BITS | right


def _unpermute(number: int, key: bytes) -> int:
    left, right = number >> _HALF_BITS, number & _HALF_MASK
    for step in reversed(range(_ROUNDS)):
        left, right = right ^ _mix(left, step, key), left
    return left << _HALF_BITS | right


def _spell(number: int) -> str:
    number, last = divmod(number, 26)
    number, digits = divmod(number, 10_000)
    first, second = divmod(number, 26)
    letters = ascii_uppercase
    return f"{letters[first]}{letters[second]}-{digits:04d}-{letters[last]}"


def _read(value: str) -> int:
    first, second, last = (ord(value[place]) - 65 for place in (0, 1, 8))
    return ((first * 26 + second) * 10_000 + int(value[3:7])) * 26 + last
