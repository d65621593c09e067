"""Talk is whole lines where nobody watches, and one rewritten line where somebody does."""

import io

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
