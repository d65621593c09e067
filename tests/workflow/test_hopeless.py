"""When a program's end says that no other try can go better."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import InputError
from fleetctl.serving.command import CommandTrial, run_command
from fleetctl.serving.target import Target
from fleetctl.trial.workload import CommandWorkload
from fleetctl.workflow.hopeless import Tries, is_hopeless
from fleetctl.workflow.measure import program_exit
from tests.fakes.recorded_trials import trial

LINE = "CORRUPTION sessions: 1/4 = 25%  (leak=1 no_tool=0 error=0 ok-ish=3)"


def ended(folder, script: str):
    """The facts of a trial whose program was this line of shell."""
    workload = CommandWorkload(("sh", "-c", script), deadline_s=5.0)
    command = CommandTrial(workload, Target("http://127.0.0.1:1", "m"))
    result = run_command(command, folder, SystemClock())
    return trial(
        0,
        "control",
        0,
        0,
        counted=result.counted,
        void_because=result.invalid_because,
        program_exit=program_exit(result),
    )


@pytest.mark.parametrize(
    "script",
    [
        "exec /no/such/program",
        "/etc/passwd",
        "if",
        "exec env no-such-program",
        f"exec {shlex.quote(sys.executable)} no-such-script.py",
    ],
)
def test_a_program_that_is_missing_or_can_t_be_run_is_hopeless_after_one_repetition(
    tmp_path, script
):
    tries = [ended(tmp_path / name, script) for name in "ab"]

    assert is_hopeless(tries)
    assert not is_hopeless(tries[:1])


@pytest.mark.parametrize(
    "script", ["exit 1", "true", "kill -9 $$", f"echo '{LINE}'; exit 2", f"echo '{LINE}'; exit 127"]
)
def test_a_program_that_ran_or_reported_something_may_do_better_next_time(tmp_path, script):
    assert not is_hopeless([ended(tmp_path / name, script) for name in "ab"])


def test_a_second_try_that_ends_otherwise_leaves_hope(tmp_path):
    first = ended(tmp_path / "a", "echo no argument X >&2; exit 2")
    second = ended(tmp_path / "b", "echo no answer >&2; exit 2")

    assert not is_hopeless([first, second])


def test_a_later_trial_of_a_program_that_was_given_up_is_only_spoilt(tmp_path):
    tries, facts = Tries(tmp_path, "try again"), ended(tmp_path / "a", "exec /no/such/program")
    tries.after(facts, lambda: False)
    with pytest.raises(InputError, match="does not get going"):
        tries.after(facts, lambda: False)
    first = tries.given_up

    tries.after(facts, lambda: False)

    assert tries.given_up is first


def test_what_somebody_saw_at_work_or_another_workload_does_is_not_given_up(tmp_path):
    tries, facts = Tries(tmp_path, "try again"), ended(tmp_path / "a", "exec /no/such/program")
    works = ended(tmp_path / "b", f"echo '{LINE}'")

    tries.after(facts, lambda: True)
    tries.after(facts, lambda: True)
    tries.after(replace(facts, workload_sha256="other"), lambda: False)
    tries.after(replace(works, workload_sha256="other"), lambda: False)
    tries.after(replace(facts, workload_sha256="other"), lambda: False)

    assert tries.given_up is None
