"""Who a program runs as: the login user, or another through a program that may ask a password."""

from __future__ import annotations

from dataclasses import dataclass


class Secret:
    """A string that never shows itself in a message, a log or a traceback."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the string, for the one place that must send it."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True)
class Escalation:
    """How a supervisor is started as somebody else.

    Attributes:
        prefix: the words before the supervisor's command, such as `sudo -n --`; empty: as is.
        prompt: what appears on stderr when a password is wanted; empty: none will be asked.
        password: the answer, sent once.
    """

    prefix: tuple[str, ...] = ()
    prompt: bytes = b""
    password: Secret | None = None


AS_LOGIN_USER = Escalation()
