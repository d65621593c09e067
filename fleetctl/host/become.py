"""Programs as another user: a transport around a transport, with sudo in between.

sudo starts the supervisor, not the program, so that the one who watches and kills is as mighty as
the one who is watched: the login user may not even signal a sudo.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence

from fleetctl.host.escalation import Escalation, Secret
from fleetctl.host.files import get_file, put_file
from fleetctl.host.shell import ShellTransport
from fleetctl.host.transport import Completed


class SudoTransport:
    """Runs everything as another user of the host; forwarding and life signs are the inner one's.

    Without a password sudo is told never to ask. With one, it is sent on stdin when sudo prompts,
    and only then; the prompt is a random word of ours, so neither the wording of sudo, nor its
    language, nor sudo-rs matter. It is offered once: a second prompt means that it was wrong.
    """

    def __init__(
        self, inner: ShellTransport, *, password: Secret | None = None, user: str = "root"
    ) -> None:
        self._inner = inner
        self._password = password
        self._user = user

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        return self._inner.host_name

    @property
    def channels_opened(self) -> int:
        """How many sessions were asked for so far, the inner transport's own included."""
        return self._inner.channels_opened

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float) -> Completed:
        """Run a program to its end as the other user; see `Transport.run`.

        Raises:
            LoginRefused: sudo did not let us through.
        """
        return self._inner.run_as(self._escalation(), argv, stdin=stdin, deadline_s=deadline_s)

    def put(self, content: bytes, path: str, *, mode: int) -> None:
        """Write a file atomically; see `Transport.put`."""
        put_file(self, content, path, mode=mode)

    def get(self, path: str) -> bytes:
        """Read a whole file."""
        return get_file(self, path)

    def forward(
        self, port: int, *, address: str = "127.0.0.1"
    ) -> contextlib.AbstractContextManager[tuple[str, int]]:
        """Open a local listener to a port on the host; yields (address, port) to connect to."""
        return self._inner.forward(port, address=address)

    def check_alive(self, *, deadline_s: float) -> None:
        """Ask the peer for an answer; raise ConnectionLost when it gives none in time."""
        self._inner.check_alive(deadline_s=deadline_s)

    def is_open(self) -> bool:
        """Say whether the connection still stands, as far as this side knows."""
        return self._inner.is_open()

    def close(self) -> None:
        """End remote processes of this transport and close the connection."""
        self._inner.close()

    def _escalation(self) -> Escalation:
        if self._password is None:
            return Escalation(("sudo", "-n", "-u", self._user, "--"))
        prompt = f"[{secrets.token_hex(16)}]"
        # -k: never a cached login, which could end between two calls
        prefix = ("sudo", "-S", "-k", "-p", prompt, "-u", self._user, "--")
        return Escalation(prefix, prompt.encode(), self._password)
