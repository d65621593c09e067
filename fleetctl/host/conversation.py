"""One supervised call from the controller's side: greet, answer, feed, drain, end or kill."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.clock import Clock
from fleetctl.errors import (
    ChannelRefused,
    ConnectionLost,
    HostError,
    LoginRefused,
    RemoteFailed,
    RemoteTimeout,
)
from fleetctl.host.escalation import Escalation
from fleetctl.host.marks import MarkedStream, Stage
from fleetctl.host.pipe import Connection, Pipe
from fleetctl.host.supervisor import Call
from fleetctl.host.transport import Completed

SLICE_S = 0.2
SETTLE_S = 0.5
# The supervisor needs 1.5 s for a program that ignores SIGTERM, and 4.5 s for one that can't die.
KILL_PATIENCE_S = 2.5
KILL_LIMIT_S = 8.0
MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a call may cost.

    Attributes:
        shell_deadline_s: how long the login shell may take to reach our command.
        output_bytes: how much stdout and stderr together may hold in memory.
    """

    shell_deadline_s: float = 90.0
    output_bytes: int = 256 * MIB


@dataclass(frozen=True)
class Context:
    """What a conversation needs besides the pipe and the call."""

    connection: Connection
    clock: Clock
    limits: Limits
    escalation: Escalation
    abandoned: threading.Event
    kill_group: Callable[[int], bool]


class _TimeIsUp(Exception):
    """Internal: the deadline of the present stage has passed."""


class Conversation:
    """Talks with one supervisor until its program has ended."""

    def __init__(self, pipe: Pipe, call: Call, context: Context) -> None:
        self._pipe = pipe
        self._call = call
        self._context = context
        self._stdout = MarkedStream(call.mark.printed)
        self._stderr = MarkedStream(call.mark.printed)
        self._outgoing = memoryview(b"")
        self._answered = False
        self._was_sent = False
        self._over = False

    def complete(self) -> Completed:
        """Run the call to its end; whatever goes wrong, the program's group is ended first.

        Raises:
            RemoteTimeout, ConnectionLost, ChannelRefused, LoginRefused, RemoteFailed.
        """
        try:
            self._await(self._is_greeted, self._context.limits.shell_deadline_s)
            self._outgoing = memoryview(self._call.framed_stdin)
            self._was_sent = True
            self._await(self._is_complete, self._call.deadline_s)
            return self._completed()
        except _TimeIsUp:
            raise self._timed_out(is_gone=self._give_up()) from None
        except BaseException:
            self._give_up()
            raise
        finally:
            self._pipe.close()

    def was_greeted(self) -> bool:
        """Say whether the host gave this call a session."""
        return self._stdout.greeted

    def _is_greeted(self) -> bool:
        return self._stdout.greeted or self._stdout.stage is Stage.ENDED

    def _is_complete(self) -> bool:
        if self._stdout.stage is not Stage.ENDED:
            return False
        return not self._stdout.opening or self._stderr.stage is Stage.ENDED

    def _await(self, is_reached: Callable[[], bool], duration_s: float) -> None:
        clock = self._context.clock
        until_s = clock.monotonic_s() + duration_s
        while not is_reached():
            left_s = until_s - clock.monotonic_s()
            if left_s <= 0:
                raise _TimeIsUp
            if self._context.abandoned.is_set():
                raise self._closed_meanwhile()
            self._exchange(min(SLICE_S, left_s))
            self._check_size()
            if self._over and not is_reached():
                raise self._ended_early()

    def _exchange(self, wait_s: float) -> None:
        if self._outgoing:
            self._outgoing = self._outgoing[self._pipe.send(self._outgoing) :]
        received = self._pipe.receive(wait_s, sending=bool(self._outgoing))
        self._stdout.feed(received.stdout)
        self._stderr.feed(received.stderr)
        self._over = received.ended
        self._answer_prompt()

    def _answer_prompt(self) -> None:
        escalation = self._context.escalation
        if self._stdout.greeted or not escalation.prompt:
            return
        if not self._stderr.take_noise_up_to(escalation.prompt):
            return
        if self._answered or escalation.password is None:
            raise self._password_refused()
        self._answered = True
        self._outgoing = memoryview(escalation.password.reveal().encode() + b"\n")

    def _check_size(self) -> None:
        limit = self._context.limits.output_bytes
        if self._stdout.size_bytes + self._stderr.size_bytes > limit:
            raise RemoteFailed(
                f"`{self._program}` on {self._host} printed too much",
                why=f"more than {limit // MIB} MiB would have to be held in memory; it was killed",
                next_step="let the program write to a file on the host, or print less",
            )

    def _completed(self) -> Completed:
        closing = self._stdout.closing
        if not self._stdout.opening or len(closing) != 2 or not closing[0].isdigit():
            raise RemoteFailed(
                f"`{self._program}` could not be started on {self._host}",
                why="the host has no `setsid` program"
                if closing == (b"no", b"setsid")
                else f"its supervisor answered {b' '.join(closing)!r}",
                next_step="install util-linux on the host, and look for a process limit there",
            )
        return Completed(int(closing[0]), self._stdout.body, self._stderr.body)

    def _give_up(self) -> bool:
        """End the program's group; say whether the host confirmed that it is gone."""
        if self._over or not self._is_started_or_starting():
            return self._stdout.stage is Stage.ENDED
        self._pipe.finish_input()
        if self._drain(KILL_PATIENCE_S):
            return self._stdout.closing[-1:] == (b"gone",)
        group = self._stdout.opening[:1]
        # The feeder can't see the end of file behind input that the program does not read.
        is_gone = bool(group) and self._context.kill_group(int(group[0]))
        self._drain(KILL_LIMIT_S - KILL_PATIENCE_S)
        return is_gone

    def _is_started_or_starting(self) -> bool:
        return self._stdout.stage is not Stage.ENDED and self._context.connection.is_open()

    def _drain(self, duration_s: float) -> bool:
        until_s = self._context.clock.monotonic_s() + duration_s
        self._outgoing = memoryview(b"")
        while self._stdout.stage is not Stage.ENDED and not self._over:
            left_s = until_s - self._context.clock.monotonic_s()
            if left_s <= 0 or not self._context.connection.is_open():
                return False
            received = self._pipe.receive(min(SLICE_S, left_s), sending=False)
            self._stdout.feed(received.stdout)
            self._stdout.forget_body()
            self._over = received.ended
        return self._stdout.stage is Stage.ENDED

    @property
    def _program(self) -> str:
        return self._call.argv[0]

    @property
    def _host(self) -> str:
        return self._context.connection.host_name

    def _timed_out(self, *, is_gone: bool) -> HostError:
        if not self._was_sent:
            return RemoteTimeout(
                f"the login shell of {self._host} never ran our command",
                why=f"after {self._context.limits.shell_deadline_s:g} s it had not come to "
                f"`{self._program}`{self._noise()}",
                next_step="find what blocks or asks in the start-up files of the login user "
                "(~/.bashrc, ~/.zshenv, /etc/bash.bashrc) and guard it with `case $- in *i*)`",
            )
        proof = "its process group was killed and is gone"
        doubt = "whether its process group is gone could not be confirmed"
        return RemoteTimeout(
            f"`{self._program}` on {self._host} took too long",
            why=f"it had {self._call.deadline_s:g} s; {proof if is_gone else doubt}",
            next_step="raise the deadline, or look at what the host is waiting for",
        )

    def _closed_meanwhile(self) -> HostError:
        return ConnectionLost(
            f"`{self._program}` on {self._host} was stopped",
            why="fleetctl closed the connection while it ran",
            next_step="none, if you asked fleetctl to stop",
        )

    def _ended_early(self) -> HostError:
        if self._is_connection_lost():
            return ConnectionLost(
                f"the connection to {self._host} broke while `{self._program}` ran",
                why=f"{self._context.connection.loss}; what the host did after that is unknown",
                next_step=f"check that {self._host} is up, then `fleetctl status`",
            )
        if self._stdout.greeted:
            return ConnectionLost(
                f"`{self._program}` on {self._host} ended without a word",
                why="its supervisor was killed there; what the program did is unknown",
                next_step="look for the out-of-memory killer in the host's kernel log",
            )
        if self._answered or self._context.escalation.prefix:
            return self._password_refused()
        if self._noise():
            return RemoteFailed(
                f"the login shell of {self._host} did not run our command",
                why=f"the session ended{self._noise()}",
                next_step="log in there by hand: `ssh HOST true` must print nothing and succeed; "
                "a forced command or a nologin shell is in the way",
            )
        return ChannelRefused(
            f"{self._host} opened no session for `{self._program}`",
            why="the session ended before the login shell ran our command",
            next_step="raise MaxSessions in the host's sshd_config, or run fewer things at once; "
            "else look for a forced command or a nologin shell",
        )

    def _is_connection_lost(self) -> bool:
        """Say whether the connection ended too; it may show a moment after its sessions did."""
        clock = self._context.clock
        until_s = clock.monotonic_s() + SETTLE_S
        while self._context.connection.is_open():
            if clock.monotonic_s() > until_s:
                return False
            clock.sleep(SETTLE_S / 10)
        return True

    def _password_refused(self) -> HostError:
        escalation = self._context.escalation
        if self._answered or escalation.password is None:
            why = "the password was not accepted" if self._answered else "it asks for a password"
        else:
            why = "it refused without asking for the password"
        return LoginRefused(
            f"`{escalation.prefix[0]}` on {self._host} did not let us through",
            why=f"{why}{self._noise()}",
            next_step=f"on {self._host} try `sudo -v` as the login user; "
            "it must be allowed to run /bin/sh as root",
        )

    def _noise(self) -> str:
        noise = (self._stderr.noise + b"\n" + self._stdout.noise).strip()
        secret = self._context.escalation.password
        text = noise.decode("utf-8", "replace")
        if secret is not None:
            text = text.replace(secret.reveal(), "***")
        return f"; it said: {text[-400:].strip()}" if text else ""
