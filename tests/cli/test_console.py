"""Talk is whole lines where nobody watches, and one rewritten line where somebody does."""

import io
import threading

import pytest

from fleetctl.cli.console import Console


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_without_a_terminal_progress_is_rare_whole_lines():
    stream = io.StringIO()
    console = Console(stream)
    for number in range(100):
        console.progress("trial", f"{number}/100")
    console.say("done")

    assert stream.getvalue() == "  trial: 0/100\ndone\n"


def test_on_a_terminal_progress_is_wiped_before_a_line_that_stays():
    stream = Terminal()
    console = Console(stream)
    console.progress("trial", "1/2")
    console.say("done")

    assert stream.getvalue().endswith("\r" + " " * len("  trial: 1/2") + "\rdone\n")


class Broken(io.StringIO):
    def write(self, _text):
        raise BrokenPipeError


@pytest.mark.parametrize("stream", [Broken(), None])
def test_a_run_goes_on_when_nobody_listens_any_more(stream, monkeypatch):
    monkeypatch.setattr("sys.stderr", stream)
    console = Console(stream)

    console.say("deploying")
    console.progress("trial", "1/2")


class Interrupting(io.StringIO):
    """A stream in whose midst a signal handler talks, as on Ctrl-C."""

    console = None

    def write(self, text):
        if self.console is not None:
            console, self.console = self.console, None
            console.say("stopping")
        return super().write(text)


def test_a_signal_handler_that_talks_in_the_midst_of_a_line_does_not_wait_for_itself():
    stream = Interrupting()
    stream.console = console = Console(stream)
    talk = threading.Thread(target=console.say, args=("deploying",), daemon=True)
    talk.start()
    talk.join(timeout=10)

    assert not talk.is_alive()
    assert "stopping\n" in stream.getvalue()
