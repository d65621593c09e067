"""The shell program that runs on hosts, under every shell that may be there."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.clock import SystemClock
from fleetctl.errors import InternalError
from fleetctl.host import supervisor
from fleetctl.host.local import connect_local
from fleetctl.host.marks import MarkedStream, Stage
from fleetctl.host.supervisor import Call, as_argv, local_argv, login_command, script_for
from tests.host.processes import is_running, pid_in, wait_until

SYSTEM_SHELLS = ("dash", "bash", "busybox")
LOGIN_SHELLS = ("sh", "bash", "dash", "zsh", "fish", "tcsh", "ksh", "mksh", "busybox")


def shell_path(name: str, folder: Path) -> str:
    """Return the path of a shell, or skip; busybox is a shell when it is called sh."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} on this machine")
    if name != "busybox":
        return found
    link = folder / "sh"
    if not link.exists():
        link.symlink_to(found)
    return str(link)


class Supervised:
    """A supervisor whose pipes are in our hands."""

    def __init__(self, argv: list[str], call: Call) -> None:
        self.call = call
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        self.stdout = MarkedStream(call.mark.printed)
        self.stderr = MarkedStream(call.mark.printed)

    def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def read_until_greeted(self) -> None:
        while not self.stdout.greeted:
            self._read()

    def finish(self) -> tuple[int, bytes, bytes]:
        """Read to the end mark, hang up, and say how it went."""
        while self.stdout.stage is not Stage.ENDED:
            self._read()
        self.hang_up()
        assert self.process.stderr is not None
        self.stderr.feed(self.process.stderr.read())
        return int(self.stdout.closing[0]), self.stdout.body, self.stderr.body

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def _read(self) -> None:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 20)
        assert ready, "the supervisor said nothing for 20 s"
        data = os.read(self.process.stdout.fileno(), 65536)
        assert data, "the supervisor ended without its mark"
        self.stdout.feed(data)


@pytest.fixture
def started() -> Iterator[list[Supervised]]:
    """Supervisors to be reaped."""
    running: list[Supervised] = []
    yield running
    for one in running:
        one.close()


@pytest.fixture(params=SYSTEM_SHELLS)
def system_shell(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each shell that may be a host's /bin/sh."""
    return shell_path(request.param, tmp_path)


def start(shell: str, call: Call) -> Supervised:
    """Start a supervisor in which `shell` plays the part of /bin/sh."""
    return Supervised([shell, "-c", script_for(call).replace("/bin/sh", shell)], call)


def test_whatever_sh_is_the_program_is_run_exactly(system_shell: str, started: list[Supervised]):
    script = 'cat; printf err >&2; (sleep 600 &); exit "$1"'
    for content in (b"", b"hello", b"x" * 65536, b"\0\n" * 100_000):
        call = Call(("sh", "-c", script, "sh", "3"), content, 30)
        started.append(start(system_shell, call))
        started[-1].send(call.framed_stdin)

        assert started[-1].finish() == (3, content, b"err")


def test_nothing_is_left_of_a_supervisor(system_shell: str, started: list[Supervised]):
    call = Call(("sh", "-c", "echo $$"), b"", 3600)
    started.append(start(system_shell, call))
    started[-1].send(call.framed_stdin)
    started[-1].finish()
    started[-1].process.wait(10)

    wait_until(lambda: not supervisors_of(call))


def test_a_program_never_starts_when_the_controller_is_gone_before_the_go_ahead(
    system_shell: str, started: list[Supervised], tmp_path: Path
):
    call = Call(("touch", str(tmp_path / "ran")), b"", 30)
    started.append(start(system_shell, call))
    started[-1].read_until_greeted()
    started[-1].hang_up()

    started[-1].process.wait(10)

    assert not (tmp_path / "ran").exists()


def test_a_program_never_sees_the_end_of_a_cut_input(
    system_shell: str, started: list[Supervised], tmp_path: Path
):
    script = 'echo $$ >"$1/pid"; cat >/dev/null; touch "$1/read to the end"'
    call = Call(("sh", "-c", script, "sh", str(tmp_path)), b"x" * 200_000, 30)
    started.append(start(system_shell, call))
    started[-1].send(call.framed_stdin[:150_000])
    pid = pid_in(tmp_path / "pid")
    started[-1].hang_up()

    wait_until(lambda: not is_running(pid))

    assert not (tmp_path / "read to the end").exists()


def test_a_controller_that_hangs_up_ends_the_program_with_its_children(
    system_shell: str, started: list[Supervised], tmp_path: Path
):
    script = 'trap "" TERM; sleep 600 & echo $! >"$1/child"; echo $$ >"$1/self"; wait; sleep 600'
    call = Call(("sh", "-c", script, "sh", str(tmp_path)), b"", 3600)
    started.append(start(system_shell, call))
    started[-1].send(call.framed_stdin)
    pids = [pid_in(tmp_path / "self"), pid_in(tmp_path / "child")]
    started[-1].hang_up()

    wait_until(lambda: not any(map(is_running, pids)))


def test_the_host_keeps_the_deadline_when_nobody_else_does(
    system_shell: str, started: list[Supervised], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "HOST_GRACE_S", 0)
    call = Call(("sleep", "600"), b"", 1)
    started.append(start(system_shell, call))
    started[-1].send(call.framed_stdin)

    assert started[-1].finish()[0] == 143


def test_zombies_that_nobody_reaps_do_not_count_as_alive(started: list[Supervised]):
    # The child's parent leaves the group and never waits for it.
    script = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    group = os.getpgid(0)\n"
        "    if os.fork() == 0: os._exit(0)\n"
        "    os.setsid(); time.sleep(2); os._exit(0)\n"
        "time.sleep(0.5)\n"
    )
    call = Call((sys.executable, "-c", script), b"", 30)
    started.append(start("/bin/sh", call))
    started[-1].send(call.framed_stdin)

    assert started[-1].finish()[0] == 0
    assert started[-1].stdout.closing == (b"0", b"gone")


@pytest.mark.parametrize("name", LOGIN_SHELLS)
def test_any_login_shell_passes_the_command_on_unchanged(
    name: str, tmp_path: Path, started: list[Supervised]
):
    words = [
        "",
        "a b",
        "'",
        '"',
        "\\",
        "\\'",
        "$HOME",
        "!!",
        "!x",
        "*",
        "~",
        "a\nb",
        "%",
        "é\udcff",
    ]
    call = Call(("printf", r"%s\0", *words), b"", 30)
    started.append(Supervised([shell_path(name, tmp_path), "-c", login_command(call)], call))
    started[-1].send(call.framed_stdin)

    _code, stdout, stderr = started[-1].finish()

    assert stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in words]
    assert stderr == b""


def test_a_shell_that_traces_its_commands_prints_no_mark(started: list[Supervised]):
    call = Call(("echo", "out"), b"", 30)
    started.append(Supervised(["/bin/sh", "-xc", login_command(call)], call))
    started[-1].send(call.framed_stdin)

    assert started[-1].finish() == (0, b"out\n", b"")


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


@settings(deadline=None, max_examples=25)
@given(st.lists(words, max_size=6))
def test_every_argument_list_survives_quoting(arguments: list[str]):
    transport = connect_local("here", clock=SystemClock())

    done = transport.run(["printf", r"%s\0", "first", *arguments], deadline_s=30)

    assert done.stdout == b"".join(os.fsencode(w) + b"\0" for w in ["first", *arguments])


def test_arguments_that_no_command_line_holds_are_refused():
    for build in (login_command, local_argv):
        with pytest.raises(InternalError, match="Linux takes") as caught:
            build(Call(("echo", "x" * 130_000), b"", 1))

        assert "stdin" in caught.value.next_step


@pytest.mark.parametrize("argv", [[], [""], ["echo", "a\0b"]])
def test_a_command_that_no_kernel_runs_is_refused(argv: list[str]):
    with pytest.raises(InternalError):
        as_argv(argv)


def test_a_controller_killed_with_sigkill_leaves_nothing_running(tmp_path: Path):
    controller = (
        "from fleetctl.clock import SystemClock\n"
        "from fleetctl.host.local import connect_local\n"
        "transport = connect_local('here', clock=SystemClock())\n"
        f"transport.run(['sh', '-c', 'echo $$ >{tmp_path}/pid; exec sleep 600'], deadline_s=600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", controller]) as process:
        pid = pid_in(tmp_path / "pid")
        process.send_signal(signal.SIGKILL)

    wait_until(lambda: not is_running(pid))


def supervisors_of(call: Call) -> list[int]:
    """Return the processes whose command line names a call."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            is_named = call.mark.first.encode() in path.read_bytes()
        except OSError:
            continue
        if is_named and is_running(int(path.parent.name)):
            found.append(int(path.parent.name))
    return found
