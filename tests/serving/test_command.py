"""Any program can be the workload; however it ends, nothing of it is left and nothing is lost."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import InputError, Interrupted
from fleetctl.serving.command import CommandTrial, run_command
from fleetctl.serving.program import KILL_AFTER_S
from fleetctl.serving.target import Target
from fleetctl.store.atomic import write_atomic
from fleetctl.trial.workload import CommandWorkload

TARGET = Target("http://127.0.0.1:30002", "dsv4-flash", api_key="canary-key-9")


def run(
    folder: Path,
    script: str,
    *,
    is_stopped=lambda: False,
    kill_after_s: float = KILL_AFTER_S,
    **workload: object,
):
    argv = (sys.executable, "-c", textwrap.dedent(script))
    trial = CommandTrial(
        CommandWorkload(argv, **workload), TARGET, root_seed=11, run_index=2, arm="treatment"
    )
    return run_command(
        trial, folder, SystemClock(), is_stopped=is_stopped, kill_after_s=kill_after_s
    )


def test_a_program_learns_where_to_go_and_its_line_is_the_result(tmp_path):
    script = """
        import os
        for name in ("URL", "MODEL", "SEED", "RUN", "ARM", "RESULT", "API_KEY"):
            print(os.environ["FLEETCTL_" + name])
        print(os.environ["MINE"])
        print("CORRUPTION sessions: 1/4 = 25%  (leak=1 no_tool=0 error=0 ok-ish=3)")
    """
    found = run(tmp_path, script, environ=(("MINE", "yes"),))
    said = (tmp_path / "stdout.txt").read_text().splitlines()
    assert said[:5] == ["http://127.0.0.1:30002", "dsv4-flash", "11", "2", "treatment"]
    assert said[5] == str(tmp_path / "result.json")
    assert said[6:8] == ["canary-key-9", "yes"]
    assert (found.sessions, found.corrupted, found.is_valid) == (4, 1, True)
    assert found.command.exit_code == 0


def test_json_in_the_result_file_goes_before_the_line(tmp_path):
    script = """
        import json, os, pathlib
        text = json.dumps({"sessions": 2, "counts": {"garbage": 2}})
        pathlib.Path(os.environ["FLEETCTL_RESULT"]).write_text(text)
        print("CORRUPTION sessions: 0/4")
    """
    found = run(tmp_path, script)
    assert (found.sessions, found.corrupted) == (2, 2)
    assert found.command.reported_by == "json"


def test_an_old_result_file_is_never_taken_for_a_new_one(tmp_path):
    (tmp_path / "result.json").write_text('{"sessions": 2, "counts": {"done": 2}}')
    found = run(tmp_path, "pass")
    assert found.counted == 0
    assert not found.is_valid


ODD = {
    "os.mkfifo(there)": "a named pipe",
    "os.mkdir(there)": "a directory",
    "os.mkdir(there); open(there + '/inside', 'w').close()": "a directory",
    "socket.socket(socket.AF_UNIX).bind('result.json')": "a socket",
    "os.mkfifo('pipe'); os.symlink('pipe', there)": "a named pipe",
    "os.symlink('/', there)": "a directory",
    "os.symlink('/dev/zero', there)": "a device",
    "os.symlink('/dev/tty', there)": "a device",
    "os.symlink('nowhere', there)": "No such file",
    "os.symlink(there, there)": "symbolic links",
    "os.symlink('/proc/self/mem', there)": "can't be read",
    "os.truncate(os.open(there, os.O_CREAT | os.O_RDWR), 2**40)": "larger than",
}


@pytest.mark.parametrize(("script", "why"), ODD.items(), ids=list(ODD))
def test_what_is_no_result_file_voids_the_trial_and_holds_up_nobody(tmp_path, script, why):
    (tmp_path / "work").mkdir()
    script = f"""
        import os, socket
        print("CORRUPTION sessions: 0/4", flush=True)
        there = os.environ["FLEETCTL_RESULT"]
        os.chdir(os.path.dirname(there))
        {script}
    """
    for _ in range(2):  # what is left is in nobody's way when the trial is repeated
        found = run(tmp_path / "work", script)
        assert (found.sessions, found.counted, found.command.exit_code) == (0, 0, 0)
        assert len(found.invalid_because) == 1
        assert "what the workload left as result.json can't be used" in found.invalid_because[0]
        assert why in found.invalid_because[0]
        write_atomic(tmp_path / "work" / "result.json", b"the trial's own")
        (tmp_path / "work" / "pipe").unlink(missing_ok=True)
    kept = (tmp_path / "work").glob("result.json.*/inside")
    assert len(list(kept)) == (2 if "inside" in script else 0)


def test_a_result_behind_a_link_and_output_whose_name_was_taken_away_still_count(tmp_path):
    script = """
        import os, pathlib
        there = pathlib.Path(os.environ["FLEETCTL_RESULT"])
        print("said", flush=True)
        for name in ("stdout.txt", "stderr.txt"):
            (there.parent / name).unlink()
            os.mkfifo(there.parent / name)
        (there.parent / "mine").write_text('{"sessions": 2, "counts": {"done": 2}}')
        there.symlink_to("mine")
    """
    for _ in range(2):
        found = run(tmp_path, script)
        assert (found.sessions, found.is_valid, found.command.stdout_tail) == (2, True, "said\n")


@pytest.mark.parametrize(
    ("script", "code"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_a_failing_program_is_void_with_its_exit_code_and_last_words(tmp_path, script, code):
    found = run(tmp_path, f"import sys; print('last words', file=sys.stderr, flush=True); {script}")
    assert found.command.exit_code == code
    assert found.command.stderr_tail == "last words\n"
    assert f"exit code {code}" in found.invalid_because[0]


def test_an_overrun_program_is_killed_with_its_children_even_when_it_ignores_sigterm(
    tmp_path,
):
    script = f"""
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(child.pid, flush=True)
        open({str(tmp_path / "started")!r}, "w").close()
        time.sleep(60)
    """
    found = run(tmp_path, script, deadline_s=4.0, kill_after_s=0.3)
    assert found.command.is_timed_out
    assert found.command.exit_code == 137
    assert not found.is_valid
    child = (tmp_path / "stdout.txt").read_text().strip()
    assert is_gone(child)


def test_a_stopped_program_is_gone_before_the_interrupt_is_raised(tmp_path):
    script = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with pytest.raises(Interrupted):
        run(tmp_path, script, is_stopped=lambda: bool((tmp_path / "stdout.txt").read_text()))
    assert is_gone((tmp_path / "stdout.txt").read_text().strip())


def is_gone(pid: str) -> bool:
    """Whether a process ends within a moment; one that waits to be reaped has ended."""
    status = Path("/proc", pid, "stat")
    for _ in range(300):
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        SystemClock().sleep(0.1)
    return False


def test_a_program_that_floods_its_output_costs_little_memory(tmp_path):
    script = """
        for _ in range(64): print("x" * 2**20)
        print("CORRUPTION sessions: 0/4")
    """
    found = run(tmp_path, script)
    assert found.is_valid
    assert len(found.command.stdout_tail) <= 4000


@pytest.mark.parametrize("argv", [("no-such-program-here",), ("/",)])
def test_a_program_that_can_not_be_started_is_named(tmp_path, argv):
    trial = CommandTrial(CommandWorkload(argv), TARGET)
    with pytest.raises(InputError) as caught:
        run_command(trial, tmp_path, SystemClock())
    assert argv[0] in caught.value.what
