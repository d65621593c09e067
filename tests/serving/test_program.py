"""A program never outlives fleetctl, nor does anything it started, however either of them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.serving.program import Program
from tests.host.processes import is_running, pid_in, wait_until

# a program that will not go, its child, and a daemon that left session, group and parent behind
STUBBORN = """
trap '' TERM INT HUP
sh -c 'echo $$ >"$0/child.new"; mv "$0/child.new" "$0/child"; exec sleep 600' "$1" &
setsid sh -c 'sleep 600 & echo $! >"$0/daemon.new"; mv "$0/daemon.new" "$0/daemon"' "$1"
echo $$ >"$1/self.new"; mv "$1/self.new" "$1/self"
while :; do sleep 1; done
"""
NAMES = ("self", "child", "daemon")
CONTROLLER = """
import os, signal, sys, threading
from fleetctl.serving.program import Program
script, folder = sys.argv[1:]
with open(os.devnull, "wb") as nothing:
    output = (nothing.fileno(), nothing.fileno())
    argv = ("sh", "-c", script, "sh", folder)
    with Program(argv, cwd=None, environ=os.environ, output=output, kill_after_s=0.3):
        print("started", flush=True)
        sys.stdin.read()
        {end}
"""


@pytest.fixture
def controller(tmp_path: Path):
    """Starts a process of its own that runs STUBBORN and comes to an end of a given kind."""
    started: list[subprocess.Popen[bytes]] = []

    def start(
        end: str, python: Path | str = sys.executable
    ) -> tuple[subprocess.Popen[bytes], dict[str, int]]:
        process = subprocess.Popen(
            [str(python), "-c", CONTROLLER.format(end=end), STUBBORN, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        return process, {name: pid_in(tmp_path / name) for name in NAMES}

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os._exit(130)",
        "threading.Thread(target=os._exit, args=(130,)).start(); threading.Event().wait()",
        "raise SystemExit(1)",
        "os.execvp('true', ['true'])",
    ],
    ids=["kill -9", "SIGTERM", "second Ctrl-C", "from a thread", "an error", "exec"],
)
def test_nothing_of_a_program_outlives_us_however_we_end(controller, end):
    process, pids = controller(end)
    assert all(is_running(pid) for pid in pids.values())

    process.communicate()

    wait_until(lambda: not any(is_running(pid) for pid in pids.values()))


def family(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family(int(child)))]


def test_a_kill_9_of_all_whose_command_line_says_fleetctl_leaves_nothing_of_a_program(
    controller, tmp_path
):
    """As `pkill -9 -f fleetctl` selects, among the processes of this test alone."""
    python = tmp_path / "venvs" / "fleetctl" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    process, pids = controller("pass", python)

    said = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family(process.pid)}
    chosen = [pid for pid, words in said.items() if b"fleetctl" in words]
    for pid in reversed(chosen):  # the youngest first: nobody is there to notice
        os.kill(pid, signal.SIGKILL)

    assert process.pid in chosen
    wait_until(lambda: not any(is_running(pid) for pid in pids.values()))


def test_a_program_gets_arguments_of_any_bytes_and_any_length(tmp_path):
    odd = ["", "two words", "\n", os.fsdecode(bytes(range(1, 256))), *["x" * 100_000] * 8]
    with (tmp_path / "out").open("wb") as out:
        output = (out.fileno(), out.fileno())
        argv = (sys.executable, "-c", "import os, sys; print(*map(os.fsencode, sys.argv[1:]))")
        with Program((*argv, *odd), cwd=None, environ=os.environ, output=output) as program:
            ended(program)
    assert (tmp_path / "out").read_text() == " ".join(str(os.fsencode(o)) for o in odd) + "\n"


def started(script: str, folder: Path) -> Program:
    with (folder / "out").open("wb") as out:
        output = (out.fileno(), out.fileno())
        argv = ("sh", "-c", script, "sh", str(folder))
        return Program(argv, cwd=None, environ=os.environ, output=output, kill_after_s=0.3)


def ended(program: Program) -> int:
    wait_until(lambda: program.has_ended)
    return program.exit_code


def test_what_a_program_leaves_behind_at_its_own_end_ends_with_it(tmp_path):
    script = STUBBORN.replace("while :; do sleep 1; done", "exit 3")
    with started(script, tmp_path) as program:
        code = ended(program)

    pids = {name: pid_in(tmp_path / name) for name in NAMES}
    assert code == 3
    assert [name for name, pid in pids.items() if is_running(pid)] == []


def test_a_program_whose_parent_somebody_killed_is_gone_with_its_children(tmp_path):
    script = "sleep 600 & echo $! >$1/child.new; mv $1/child.new $1/child; wait"
    with started(script, tmp_path) as program:
        child = pid_in(tmp_path / "child")
        program._warden.kill()
        ended(program)

    assert program.exit_code == 128 + signal.SIGKILL
    wait_until(lambda: not is_running(child))


def test_a_program_is_asked_before_it_is_killed(tmp_path):
    script = "trap 'echo bye >$1/bye; exit 0' TERM; echo $$ >$1/self; while :; do sleep 0.01; done"
    with started(script, tmp_path):
        pid_in(tmp_path / "self")

    assert (tmp_path / "bye").read_text() == "bye\n"


def test_a_program_gets_exactly_its_environment_a_session_of_its_own_and_no_descriptors(tmp_path):
    given = {"PATH": os.environ["PATH"], "LANG": "C", "ODD": "a=b\n$(id)", "EMPTY": ""}
    script = """
        ls /proc/$$/fd; grep SigIgn /proc/self/status; grep SigBlk /proc/self/status
        echo $$; cut -d' ' -f6 /proc/$$/stat
        exec env -0 >"$1/env"
    """
    with (tmp_path / "out").open("wb") as out:
        output, argv = (out.fileno(), out.fileno()), ("sh", "-c", script, "sh", str(tmp_path))
        with Program(argv, cwd=None, environ=given, output=output) as program:
            ended(program)

    *descriptors, _, ignored, _, blocked, pid, session = (tmp_path / "out").read_text().split()
    assert descriptors == ["0", "1", "2"]
    ours = Path("/proc/self/status").read_text().partition("SigIgn:")[2].split()[0]
    assert int(ignored, 16) & ~int(ours, 16) == int(blocked, 16) == 0
    assert pid == session
    variables = (tmp_path / "env").read_text().split("\0")
    assert {f"{name}={value}" for name, value in given.items()} == {*variables} - {
        "",
        *of_sh(variables),
    }


def of_sh(variables: list[str]) -> list[str]:
    """Return the variables that `sh` itself sets."""
    return [each for each in variables if each.partition("=")[0] in ("PWD", "OLDPWD", "_", "SHLVL")]


@pytest.mark.parametrize("argv", [("no-such-program",), ("/",), ("true", "nu\0l")])
def test_a_program_that_can_not_be_started_leaves_nothing(tmp_path, argv):
    with (tmp_path / "out").open("wb") as out:
        output = (out.fileno(), out.fileno())
        with pytest.raises(OSError, match=r"No such file|denied|null"):
            Program(argv, cwd=None, environ=os.environ, output=output)
    assert (tmp_path / "out").read_text() == ""
