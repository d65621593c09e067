"""One supervised call from the controller's side: greet, answer, feed, drain, end or kill."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from fleetctl.clock import Clock
from fleetctl.errors import HostError
from fleetctl.host.call_errors import MIB, CallErrors
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
        self._errors = CallErrors(call.argv[0], context.connection.host_name, context.escalation)
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
            raise self._time_is_up() from None
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
                raise self._errors.closed_meanwhile()
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
            raise self._errors.password_refused(self._noise(), was_answered=self._answered)
        self._answered = True
        self._outgoing = memoryview(escalation.password.reveal().encode() + b"\n")

    def _check_size(self) -> None:
        limit = self._context.limits.output_bytes
        if self._stdout.size_bytes + self._stderr.size_bytes > limit:
            raise self._errors.printed_too_much(limit)

    def _completed(self) -> Completed:
        closing = self._stdout.closing
        if not self._stdout.opening or len(closing) != 2 or not closing[0].isdigit():
            raise self._errors.not_started(closing)
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

    def _time_is_up(self) -> HostError:
        was_sent = self._was_sent
        is_gone = self._give_up()
        if was_sent:
            return self._errors.took_too_long(self._call.deadline_s, is_gone=is_gone)
        return self._errors.shell_never_came(self._context.limits.shell_deadline_s, self._noise())

    def _ended_early(self) -> HostError:
        if self._is_connection_lost():
            return self._errors.connection_broke(self._context.connection.loss)
        if self._stdout.greeted:
            return self._errors.supervisor_killed()
        if self._context.escalation.prefix:
            return self._errors.password_refused(self._noise(), was_answered=self._answered)
        if self._noise():
            return self._errors.shell_refused(self._noise())
        return self._errors.no_session()

    def _is_connection_lost(self) -> bool:
        """Say whether the connection ended too; it may show a moment after its sessions did."""
        clock = self._context.clock
        until_s = clock.monotonic_s() + SETTLE_S
        while self._context.connection.is_open():
            if clock.monotonic_s() > until_s:
                return False
            clock.sleep(SETTLE_S / 10)
        return True

    def _noise(self) -> bytes:
        return (self._stderr.noise + b"\n" + self._stdout.noise).strip()
