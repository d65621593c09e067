"""What the controller does when a call does not go well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import ConnectionLost, HostError, RemoteFailed, RemoteTimeout
from fleetctl.host.conversation import Limits
from fleetctl.host.local import LocalConnection, connect_local
from fleetctl.host.process_pipe import ProcessPipe
from fleetctl.host.shell import ShellTransport
from fleetctl.host.supervisor import Call, local_argv
from tests.host.processes import (
    descendants,
    is_running,
    pid_in,
    processes_with,
    signal_all,
    wait_until,
)

MIB = 1 << 20


@pytest.fixture
def local() -> ShellTransport:
    return connect_local("here", clock=SystemClock())


class BehindLoginShell(LocalConnection):
    """A local host whose login shell does something before it runs our command."""

    def __init__(self, before: str) -> None:
        super().__init__("slow-1")
        self._before = before

    def open(self, call: Call) -> ProcessPipe:
        return ProcessPipe(["/bin/sh", "-c", f'{self._before}\nexec "$@"', "sh", *local_argv(call)])


def behind(before: str, *, shell_deadline_s: float = 30.0) -> ShellTransport:
    limits = Limits(shell_deadline_s=shell_deadline_s)
    return ShellTransport(BehindLoginShell(before), clock=SystemClock(), limits=limits)


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_program_that_prints_without_end_is_killed_and_memory_stays_bounded(stream: str):
    limited = connect_local("here", clock=SystemClock(), limits=Limits(output_bytes=4 * MIB))
    word = uuid.uuid4().hex
    tracemalloc.start()
    try:
        with pytest.raises(RemoteFailed, match="printed too much: more than 4 MiB"):
            limited.run(["sh", "-c", f"exec yes {word} >&{stream}"], deadline_s=60)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak_bytes < 16 * MIB
    assert processes_with(word) == []


def test_a_slow_login_shell_does_not_eat_the_programs_time():
    done = behind("sleep 1.5").run(["sleep", "0.2"], deadline_s=1)

    assert done.exit_code == 0


def test_noise_before_the_command_is_not_output():
    noise = "echo Welcome; tty; echo to stderr >&2; printf 'no newline'"

    done = behind(noise).run(["sh", "-c", "printf out; printf err >&2"], deadline_s=30)

    assert (done.stdout, done.stderr) == (b"out", b"err")


def test_what_a_daemon_prints_after_its_program_is_not_output(
    local: ShellTransport, tmp_path: Path
):
    # It holds the program's stdout, and prints only once the call has returned.
    late = 'echo $$ >"$1/pid"; until [ -e "$1/returned" ]; do sleep 0.05; done; echo late'
    script = 'setsid sh -c "$2" sh "$1" & until [ -s "$1/pid" ]; do sleep 0.05; done; echo out'

    done = local.run(["sh", "-c", script, "sh", str(tmp_path), late], deadline_s=30)

    (tmp_path / "returned").touch()
    assert (done.exit_code, done.stdout) == (0, b"out\n")
    wait_until(lambda: not is_running(pid_in(tmp_path / "pid")))


def test_a_login_shell_that_asks_a_question_is_quoted_and_its_command_never_runs(tmp_path: Path):
    asks = f"printf 'Which environment? '; echo $$ >{tmp_path}/pid; read answer"

    with pytest.raises(RemoteTimeout, match="never ran our command") as caught:
        behind(asks, shell_deadline_s=1.5).run(["touch", str(tmp_path / "ran")], deadline_s=30)

    assert "Which environment?" in caught.value.why
    assert "case $- in" in caught.value.next_step
    wait_until(lambda: not is_running(pid_in(tmp_path / "pid")))
    assert not (tmp_path / "ran").exists()


def test_a_command_whose_login_shell_was_too_slow_does_not_run_later(tmp_path: Path):
    slow = f"sleep 1; echo $$ >{tmp_path}/pid"

    with pytest.raises(RemoteTimeout, match="never ran our command"):
        behind(slow, shell_deadline_s=1.0).run(["touch", str(tmp_path / "ran")], deadline_s=30)

    pid_in(tmp_path / "pid")
    wait_until(lambda: not is_running(pid_in(tmp_path / "pid")))
    assert not (tmp_path / "ran").exists()


def test_a_login_shell_that_refuses_is_quoted():
    with pytest.raises(RemoteFailed, match="did not run our command") as caught:
        behind("echo This account is currently not available.; exit 1").run(["true"], deadline_s=9)

    assert "This account is currently not available." in caught.value.why


def test_a_supervisor_killed_on_the_host_is_a_lost_connection_and_not_an_exit_code(
    local: ShellTransport, tmp_path: Path
):
    others = set(descendants(os.getpid()))

    def kill_supervisors() -> None:
        pid = pid_in(tmp_path / "pid")
        signal_all(set(descendants(os.getpid())) - others - {pid}, signal.SIGKILL)

    killer = threading.Thread(target=kill_supervisors)
    killer.start()
    with pytest.raises(ConnectionLost, match="without a word"):
        local.run(["sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 600"], deadline_s=60)
    killer.join()

    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)


def test_an_interrupt_ends_the_program_before_it_goes_on(tmp_path: Path):
    # In a process of its own: who runs these tests need not be in its main thread.
    controller = (
        "from fleetctl.clock import SystemClock\n"
        "from fleetctl.host.local import connect_local\n"
        "here = connect_local('here', clock=SystemClock())\n"
        "try:\n"
        f"    here.run(['sh', '-c', 'echo $$ >{tmp_path}/pid; exec sleep 600'], deadline_s=600)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    argv = [sys.executable, "-c", controller]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        program = pid_in(tmp_path / "pid")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)

    assert said == "interrupted\n"
    assert not is_running(program)


@pytest.mark.parametrize(
    "fail",
    [
        lambda here: here.get("/nowhere"),
        lambda here: here.run(["sleep", "9"], deadline_s=0.1),
        lambda _: behind("exit 1").run(["true"], deadline_s=9),
    ],
    ids=["failed", "timed out", "no session"],
)
def test_every_failure_says_what_why_and_what_next(
    local: ShellTransport, fail: Callable[[ShellTransport], object]
):
    with pytest.raises(HostError) as caught:
        fail(local)

    error = caught.value
    assert error.what
    assert error.why
    assert error.next_step
    assert not error.what.endswith(".")
