"""sudo's passwords: taken from where the inventory says, and out of the reach of our children."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Self

from fleetctl.errors import InputError
from fleetctl.host.escalation import Secret
from fleetctl.spec.inventory import Sudo


class SudoPasswords:
    """The passwords of one invocation, each asked for once.

    A variable that holds one leaves our environment when it is read, so that no program we start
    (ssh, a workload) inherits it; it is back when the block is left.
    """

    def __init__(self, user: str) -> None:
        self._user = user
        self._lock = threading.Lock()
        self._known: dict[Sudo, Secret] = {}
        self._taken: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put back what was taken from the environment."""
        os.environ.update(self._taken)

    def of(self, sudo: Sudo) -> Secret | None:
        """Return the password; None where sudo asks for none.

        Raises:
            InputError: it is not where the inventory says.
        """
        with self._lock:
            if sudo not in self._known:
                found = self._find(sudo)
                if found is None:
                    return None
                self._known[sudo] = Secret(found)
            return self._known[sudo]

    def _find(self, sudo: Sudo) -> str | None:
        if sudo.password_env is not None:
            return self._from_environment(sudo.password_env)
        if sudo.password_keyring is not None:
            return self._from_keyring(sudo.password_keyring)
        return None

    def _from_environment(self, name: str) -> str:
        found = os.environ.pop(name, self._taken.get(name))
        if found is None:
            raise InputError(
                f"the environment has no {name}",
                why="the inventory says that it holds sudo's password",
                next_step=f"export {name}, or change `sudo` in the inventory",
            )
        self._taken[name] = found
        return found

    def _from_keyring(self, service: str) -> str:
        import keyring

        found = keyring.get_password(service, self._user)
        if found is None:
            raise InputError(
                f"the keyring has no password for {service}",
                why="the inventory says that it holds sudo's password",
                next_step=f"keyring set {service} {self._user}",
            )
        return found
