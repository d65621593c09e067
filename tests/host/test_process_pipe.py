"""A child starts with every signal at its default, also below a `nohup` or a shell's `&`."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from fleetctl.host.process_pipe import INHERITED, with_default_signals

PROGRAM = ["grep", "SigIgn", "/proc/self/status"]


def ignoring(*signals: signal.Signals) -> str:
    """Return what a child of a process that ignores the signals says about its own."""
    script = f"""
        import signal, time
        from fleetctl.host.process_pipe import ProcessPipe
        for number in {[int(each) for each in signals]}:
            signal.signal(number, signal.SIG_IGN)
        pipe = ProcessPipe({PROGRAM})
        pipe.finish_input()
        ended = False
        while not ended:
            received = pipe.receive(1.0, sending=False)
            print(received.stdout.decode(), end="")
            ended = received.ended
        pipe.close()
    """
    code = [sys.executable, "-c", textwrap.dedent(script)]
    return subprocess.run(code, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("ignored", [(), (signal.SIGINT,), INHERITED])
def test_a_child_ignores_nothing_whatever_its_parent_ignores(ignored):
    assert int(ignoring(*ignored).split(":")[1], 16) == 0


def test_without_ignored_signals_the_command_line_is_as_given():
    before = {each: signal.getsignal(each) for each in INHERITED}
    for each in INHERITED:
        signal.signal(each, signal.SIG_DFL)
    try:
        assert with_default_signals(PROGRAM) == PROGRAM
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
