"""A `Transport` made of any `Connection`: every back end runs programs in the same way."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import tenacity

from fleetctl.clock import Clock
from fleetctl.errors import ChannelRefused, ConnectionLost, HostError
from fleetctl.host.conversation import Context, Conversation, Limits
from fleetctl.host.escalation import AS_LOGIN_USER, Escalation
from fleetctl.host.files import get_file, put_file
from fleetctl.host.pipe import Connection
from fleetctl.host.supervisor import Call, as_argv
from fleetctl.host.transport import Completed

# sshd's MaxSessions is 10 by default: one is kept for killing, and one to spare.
SESSIONS_AT_ONCE = 8
REFUSAL_PATIENCE_S = 4.0
CLOSE_PATIENCE_S = 15.0
KILL_DEADLINE_S = 6.0
# $1 is a process group; exit code 0 when nothing of it is left that still runs.
_KILL_GROUP = """kill -KILL "-$1"
i=0
while kill -0 "-$1" && cat /proc/[0-9]*/stat | sed 's/.*) //' |
  awk -v g="$1" '$3 == g && $1 !~ /[ZX]/ { found = 1 } END { exit !found }'
do
  i=$((i + 1))
  if [ $i -gt 20 ]; then exit 1; fi
  sleep 0.1
done
"""


class ShellTransport:
    """One open connection to one host, whatever carries it."""

    def __init__(self, connection: Connection, *, clock: Clock, limits: Limits) -> None:
        self._connection = connection
        self._clock = clock
        self._limits = limits
        self._slots = threading.BoundedSemaphore(SESSIONS_AT_ONCE)
        self._closing = threading.Event()
        self._idle = threading.Condition()
        self._running = 0
        self._live: set[Conversation] = set()
        self._served_at_s = clock.monotonic_s()
        self._opened = 0

    @property
    def host_name(self) -> str:
        """The host's name in the inventory, for messages."""
        return self._connection.host_name

    @property
    def channels_opened(self) -> int:
        """How many sessions were asked for so far; forwarded connections don't count."""
        return self._opened

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline_s: float) -> Completed:
        """Run a program to its end as the login user; see `Transport.run`."""
        return self.run_as(AS_LOGIN_USER, argv, stdin=stdin, deadline_s=deadline_s)

    def run_as(
        self,
        escalation: Escalation,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        deadline_s: float,
    ) -> Completed:
        """Run a program to its end as whoever `escalation` makes of us.

        Raises:
            LoginRefused: the escalation was refused; and all that `Transport.run` raises.
        """
        words = as_argv(argv)
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ChannelRefused),
            stop=self._is_refusal_final,
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=2.0),
            sleep=self._clock.sleep,
            reraise=True,
        )
        with self._slot():
            return attempts(
                lambda: self._converse(
                    Call(words, stdin, deadline_s, prefix=escalation.prefix), escalation
                )
            )

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
        return self._connection.forward(port, address=address)

    def check_alive(self, *, deadline_s: float) -> None:
        """Ask the peer for an answer; raise ConnectionLost when it gives none in time."""
        self._connection.check_alive(deadline_s=deadline_s)

    def is_open(self) -> bool:
        """Say whether the connection still stands, as far as this side knows."""
        return not self._closing.is_set() and self._connection.is_open()

    def close(self) -> None:
        """End remote processes of this transport and close the connection."""
        self._closing.set()
        with self._idle:
            self._idle.wait_for(lambda: self._running == 0, timeout=CLOSE_PATIENCE_S)
        self._connection.close()

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        with self._idle:
            self._running += 1
        try:
            while not self._slots.acquire(timeout=0.2):
                self._refuse_when_closing()
            try:
                self._refuse_when_closing()
                yield
            finally:
                self._slots.release()
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def _refuse_when_closing(self) -> None:
        if self._closing.is_set():
            raise ConnectionLost(
                f"the connection to {self.host_name} is closed",
                why="fleetctl closed it",
                next_step="none, if you asked fleetctl to stop",
            )

    def _converse(self, call: Call, escalation: Escalation) -> Completed:
        context = self._context(
            escalation, self._closing, lambda group: self._kill_group(group, escalation)
        )
        return self._complete(call, context)

    def _kill_group(self, group: int, escalation: Escalation) -> bool:
        """Kill a process group through a session of its own; say whether it is gone."""
        argv = ("/bin/sh", "-c", _KILL_GROUP, "kill", str(group))
        call = Call(argv, b"", KILL_DEADLINE_S, prefix=escalation.prefix)
        # Neither `close` nor a failure may start yet another killer.
        context = self._context(escalation, threading.Event(), lambda _group: False)
        try:
            return self._complete(call, context).exit_code == 0
        except HostError:
            return False

    def _complete(self, call: Call, context: Context) -> Completed:
        with self._idle:
            self._opened += 1
        try:
            pipe = self._connection.open(call)
        except OSError as error:
            raise ChannelRefused(
                f"cannot start `{call.argv[0]}` for {self.host_name}",
                why=f"this machine could not start a process for it: {error}",
                next_step="look for a limit on processes or open files here (`ulimit -a`)",
            ) from error
        conversation = Conversation(pipe, call, context)
        with self._idle:
            self._live.add(conversation)
        try:
            return conversation.complete()
        finally:
            with self._idle:
                self._live.discard(conversation)
                if conversation.was_greeted():
                    self._served_at_s = self._clock.monotonic_s()

    def _is_refusal_final(self, state: tenacity.RetryCallState) -> bool:
        """Say whether waiting longer for a session is vain: none of ours could make room."""
        with self._idle:
            is_room_coming = any(conversation.was_greeted() for conversation in self._live)
            idle_s = self._clock.monotonic_s() - self._served_at_s
        waited_s = min(state.seconds_since_start or 0.0, idle_s)
        return self._closing.is_set() or (waited_s > REFUSAL_PATIENCE_S and not is_room_coming)

    def _context(
        self,
        escalation: Escalation,
        abandoned: threading.Event,
        kill_group: Callable[[int], bool],
    ) -> Context:
        return Context(
            connection=self._connection,
            clock=self._clock,
            limits=self._limits,
            escalation=escalation,
            abandoned=abandoned,
            kill_group=kill_group,
        )
