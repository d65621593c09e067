"""Runs a user's own program as the workload: no shell, a deadline, everything it says kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetctl.clock import Clock
from fleetctl.errors import InputError, Interrupted
from fleetctl.serving.left_file import make_way, read_left_file
from fleetctl.serving.program import KILL_AFTER_S, Program
from fleetctl.serving.target import Target
from fleetctl.trial.command_result import command_result
from fleetctl.trial.summary import CommandRun, TrialResult
from fleetctl.trial.workload import CommandWorkload

POLL_S = 0.05
TAIL_BYTES = 4_000
READ_BYTES = 4 * 2**20


@dataclass(frozen=True)
class CommandTrial:
    """One run of the program.

    Attributes:
        workload: the program.
        target: the server it exercises.
        root_seed: the experiment's seed; both arms get the same.
        run_index: number of the run.
        arm: control or treatment.
    """

    workload: CommandWorkload
    target: Target
    root_seed: int = 0
    run_index: int = 0
    arm: str = ""


def run_command(
    trial: CommandTrial,
    folder: Path,
    clock: Clock,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    kill_after_s: float = KILL_AFTER_S,
) -> TrialResult:
    """Run the program to its end and return what it reports.

    Its output is in `stdout.txt` and `stderr.txt` of the folder, its JSON in `result.json`. A
    program that fails, or overruns its deadline, or says nothing, or leaves something else than a
    file of a sane size gives an invalid result. It and all it started end with us, also when we
    are killed.

    Args:
        trial: what to run, against what.
        folder: keeps its output; made when missing.
        clock: for the deadline.
        is_stopped: asked many times a second; when it says yes, the program is killed.
        kill_after_s: how long the program may take to end when it is asked to.

    Raises:
        InputError: the program can't be started.
        Interrupted: `is_stopped` said so; the program and its children are gone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    result_path = folder / "result.json"
    outputs = (folder / "stdout.txt", folder / "stderr.txt")
    for path in (result_path, *outputs):
        make_way(path)
    began_s = clock.monotonic_s()
    with outputs[0].open("w+b") as out, outputs[1].open("w+b") as err:
        with _start(trial, result_path, (out.fileno(), err.fileno()), kill_after_s) as program:
            is_timed_out = not _wait(program, trial.workload.deadline_s, clock, is_stopped)
        stdout = _tail(out.fileno(), READ_BYTES)
        stderr_tail = _tail(err.fileno(), TAIL_BYTES)
    run = CommandRun(
        argv=trial.workload.argv,
        exit_code=program.exit_code,
        is_timed_out=is_timed_out,
        reported_by="nothing",
        stdout_tail=stdout[-TAIL_BYTES:],
        stderr_tail=stderr_tail,
        wall_s=clock.monotonic_s() - began_s,
    )
    return _reported(run, stdout, result_path)


def _reported(run: CommandRun, stdout: str, result_path: Path) -> TrialResult:
    """Return what the program reports; something that is no result file voids the trial."""
    try:
        result_file = read_left_file(result_path, READ_BYTES)
    except InputError as error:
        if result_path.is_dir():  # the trial's own result is written there
            make_way(result_path)
        return command_result(run, stdout=stdout, result_file=error)
    return command_result(run, stdout=stdout, result_file=result_file)


def command_environ(trial: CommandTrial, result_path: Path) -> dict[str, str]:
    """Return the variables that the program gets beside its own environment."""
    target = trial.target
    secret = {"FLEETCTL_API_KEY": target.api_key} if target.api_key else {}
    return {
        "FLEETCTL_URL": target.url,
        "FLEETCTL_MODEL": target.model,
        "FLEETCTL_SEED": str(trial.root_seed),
        "FLEETCTL_RUN": str(trial.run_index),
        "FLEETCTL_ARM": trial.arm,
        "FLEETCTL_RESULT": str(result_path.absolute()),
        **secret,
        **dict(trial.workload.environ),
    }


def _start(
    trial: CommandTrial, result_path: Path, output: tuple[int, int], kill_after_s: float
) -> Program:
    try:
        return Program(
            trial.workload.argv,
            cwd=trial.workload.cwd,
            environ={**os.environ, **command_environ(trial, result_path)},
            output=output,
            kill_after_s=kill_after_s,
        )
    except OSError as error:
        raise InputError(
            f"the workload's program can't be started: {trial.workload.argv[0]}",
            why=error.strerror or str(error),
            next_step="check argv in [workload]; no shell is involved",
        ) from error


def _wait(
    program: Program, deadline_s: float, clock: Clock, is_stopped: Callable[[], bool]
) -> bool:
    """Wait for the program's end; False when the deadline came first."""
    until_s = clock.monotonic_s() + deadline_s
    while not program.has_ended:
        if is_stopped():
            raise Interrupted(
                "the workload was stopped",
                why="an end was asked for",
                next_step="its output so far is kept; repeat the trial",
            )
        if clock.monotonic_s() >= until_s:
            return False
        clock.sleep(POLL_S)
    return True


def _tail(handle: int, most_bytes: int) -> str:
    """Return the end of an output, by its descriptor: the name may be another file's by now."""
    size = os.fstat(handle).st_size
    return os.pread(handle, most_bytes, max(0, size - most_bytes)).decode("utf-8", "replace")
