"""What to tell people when a supervised call did not go well."""

from __future__ import annotations

from dataclasses import dataclass

from fleetctl.errors import (
    ChannelRefused,
    ConnectionLost,
    LoginRefused,
    RemoteFailed,
    RemoteTimeout,
)
from fleetctl.host.escalation import Escalation
from fleetctl.spec.quoted import quoted

MIB = 1 << 20
NOISE_QUOTED = 400


@dataclass(frozen=True)
class CallErrors:
    """Builds the errors of one call.

    Attributes:
        program: the program's name.
        host: the host's name in the inventory.
        escalation: how the call was to become somebody else.
    """

    program: str
    host: str
    escalation: Escalation

    def took_too_long(self, deadline_s: float, *, is_gone: bool) -> RemoteTimeout:
        """The program outlived its deadline."""
        proof = "its process group was killed and is gone"
        doubt = "whether its process group is gone could not be confirmed"
        return RemoteTimeout(
            f"`{self.program}` on {self.host} took too long",
            why=f"it had {deadline_s:g} s; {proof if is_gone else doubt}",
            next_step="raise the deadline, or look at what the host is waiting for",
        )

    def shell_never_came(self, deadline_s: float, noise: bytes) -> RemoteTimeout:
        """The login shell did something else all the time."""
        return RemoteTimeout(
            f"the login shell of {self.host} never ran our command",
            why=f"after {deadline_s:g} s it had not come to `{self.program}`{self._said(noise)}",
            next_step="find what blocks or asks in the start-up files of the login user "
            "(~/.bashrc, ~/.zshenv, /etc/bash.bashrc) and guard it with `case $- in *i*)`",
        )

    def shell_refused(self, noise: bytes) -> RemoteFailed:
        """The login shell ended without running the command, and said something."""
        return RemoteFailed(
            f"the login shell of {self.host} did not run our command",
            why=f"the session ended{self._said(noise)}",
            next_step="log in there by hand: `ssh HOST true` must print nothing and succeed; "
            "a forced command or a nologin shell is in the way",
        )

    def no_session(self) -> ChannelRefused:
        """The session ended at once, and nothing was said."""
        return ChannelRefused(
            f"{self.host} opened no session for `{self.program}`",
            why="the session ended before the login shell ran our command",
            next_step="raise MaxSessions in the host's sshd_config, or run fewer things at once; "
            "else look for a forced command or a nologin shell",
        )

    def password_refused(self, noise: bytes, *, was_answered: bool) -> LoginRefused:
        """The program in between, such as sudo, did not start the supervisor."""
        if was_answered:
            why = "the password was not accepted"
        elif self.escalation.password is None:
            why = "it wants a password, or does not allow it"
        else:
            why = "it refused without asking for the password"
        return LoginRefused(
            f"`{self.escalation.prefix[0]}` on {self.host} did not let us through",
            why=f"{why}{self._said(noise)}",
            next_step=f"on {self.host} try `sudo -v` as the login user; "
            "it must be allowed to run /bin/sh as root",
        )

    def printed_too_much(self, limit_bytes: int) -> RemoteFailed:
        """The output would not fit into the memory that a call may take."""
        return RemoteFailed(
            f"`{self.program}` on {self.host} printed too much",
            why=f"more than {limit_bytes // MIB} MiB would have to be held in memory; "
            "it was killed",
            next_step="let the program write to a file on the host, or print less",
        )

    def not_started(self, answer: tuple[bytes, ...]) -> RemoteFailed:
        """The supervisor ran and could not start the program."""
        return RemoteFailed(
            f"`{self.program}` could not be started on {self.host}",
            why="the host has no `setsid` program"
            if answer == (b"no", b"setsid")
            else f"its supervisor answered {quoted(b' '.join(answer).decode(errors='replace'))}",
            next_step="install util-linux on the host, and look for a process limit there",
        )

    def closed_meanwhile(self) -> ConnectionLost:
        """Another thread closed the transport."""
        return ConnectionLost(
            f"`{self.program}` on {self.host} was stopped",
            why="fleetctl closed the connection while it ran",
            next_step="none, if you asked fleetctl to stop",
        )

    def connection_broke(self, loss: str) -> ConnectionLost:
        """The connection went, and the call with it."""
        return ConnectionLost(
            f"the connection to {self.host} broke while `{self.program}` ran",
            why=f"{loss}; what the host did after that is unknown",
            next_step=f"check that {self.host} is up, then `fleetctl status`",
        )

    def supervisor_killed(self) -> ConnectionLost:
        """The connection stands, but nobody on the host speaks for the program any more."""
        return ConnectionLost(
            f"`{self.program}` on {self.host} ended without a word",
            why="its supervisor was killed there; what the program did is unknown",
            next_step="look for the out-of-memory killer in the host's kernel log",
        )

    def _said(self, noise: bytes) -> str:
        text = noise.decode("utf-8", "replace").strip()
        if self.escalation.password is not None:
            text = text.replace(self.escalation.password.reveal(), "***")
        return f"; it said: {text[-NOISE_QUOTED:].strip()}" if text else ""
