"""What every `Transport` promises. A subclass gives it a `transport` and a `host_dir`.

`host_dir` is a folder that both the test and the host see.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleetctl.errors import ConnectionLost, RemoteFailed, RemoteTimeout
from fleetctl.host.transport import Transport
from tests.contracts.transport_files import FileContract
from tests.contracts.transport_forward import ForwardContract
from tests.host.processes import is_running, pid_in

MIB = 1 << 20
ODD_ARGUMENTS = [
    "",
    " ",
    "a b",
    "-n",
    "--",
    "'",
    '"',
    "\\",
    "\\n",
    "$HOME",
    "$(id)",
    "`id`",
    "!!",
    "%s%b\\0101",
    "*",
    "~",
    "a\nb\n",
    "\t\r\x1b[0m",
    "é漢\U0001f600",
    "\udcff\udc80",
    "x" * 20_000,
]


class RunContract:
    """Running a program."""

    def test_the_output_and_the_exit_code_are_exactly_the_programs(self, transport: Transport):
        done = transport.run(
            ["sh", "-c", r"printf 'a\0b\377'; printf 'no newline' >&2; exit 7"], deadline_s=30
        )

        assert (done.exit_code, done.stdout, done.stderr) == (7, b"a\0b\xff", b"no newline")

    def test_every_byte_survives_in_both_directions(self, transport: Transport):
        content = bytes(range(256)) * 300 + b"\n\n"

        done = transport.run(["cat"], stdin=content, deadline_s=30)

        assert done.stdout == content
        assert done.stderr == b""

    def test_arguments_arrive_unchanged_whatever_a_shell_would_make_of_them(
        self, transport: Transport
    ):
        done = transport.run(["printf", r"%s\0", *ODD_ARGUMENTS], deadline_s=30)

        assert done.stdout.split(b"\0")[:-1] == [os.fsencode(word) for word in ODD_ARGUMENTS]

    def test_a_signal_is_128_plus_its_number(self, transport: Transport):
        ends = [
            transport.run(["sh", "-c", f"kill -{name} $$; sleep 5"], deadline_s=30)
            for name in ("KILL", "TERM", "INT")
        ]

        assert [done.exit_code for done in ends] == [137, 143, 130]
        assert [done.stderr for done in ends] == [b"", b"", b""]

    def test_no_exit_code_is_mistaken_for_the_transports_own(self, transport: Transport):
        codes = [1, 126, 255]

        assert codes == [
            transport.run(["sh", "-c", f"exit {code}"], deadline_s=30).exit_code for code in codes
        ]

    def test_a_program_that_is_not_there_is_127(self, transport: Transport):
        assert transport.run(["no-such-program-here"], deadline_s=30).exit_code == 127

    def test_no_stdin_is_an_empty_one(self, transport: Transport):
        assert transport.run(["wc", "-c"], deadline_s=30).stdout.split() == [b"0"]

    def test_input_that_nobody_reads_holds_nothing_up(self, transport: Transport):
        done = transport.run(
            ["sh", "-c", "exec <&-; echo done"], stdin=b"x" * 9 * MIB, deadline_s=30
        )

        assert (done.exit_code, done.stdout) == (0, b"done\n")

    def test_nine_mebibytes_go_up_and_come_down_at_once(self, transport: Transport):
        content = os.urandom(9 * MIB)

        assert transport.run(["cat"], stdin=content, deadline_s=60).stdout == content

    @pytest.mark.parametrize("first", ["stdout", "stderr"])
    def test_more_than_a_window_on_either_output_stalls_nothing(
        self, transport: Transport, first: str
    ):
        out, err = f"head -c {5 * MIB} /dev/zero", f"head -c {5 * MIB} /dev/zero >&2"
        script = f"{out}; {err}" if first == "stdout" else f"{err}; {out}"

        done = transport.run(["sh", "-c", script], deadline_s=60)

        assert (len(done.stdout), len(done.stderr)) == (5 * MIB, 5 * MIB)

    def test_a_program_starts_with_default_signals_and_no_stray_descriptors(
        self, transport: Transport
    ):
        script = "grep SigIgn /proc/self/status; ls /proc/$$/fd"

        done = transport.run(["sh", "-c", script], deadline_s=30)

        _, ignored, *descriptors = done.stdout.split()
        assert int(ignored, 16) == 0
        assert descriptors == [b"0", b"1", b"2"]

    def test_a_program_leads_its_own_session(self, transport: Transport):
        done = transport.run(["sh", "-c", "echo $$; cut -d' ' -f6 /proc/$$/stat"], deadline_s=30)

        pid, session = done.stdout.split()
        assert pid == session

    def test_threads_share_one_connection(self, transport: Transport):
        before = transport.channels_opened
        with ThreadPoolExecutor(20) as pool:
            results = list(
                pool.map(
                    lambda n: transport.run(["sh", "-c", f"sleep 0.1; echo {n}"], deadline_s=60),
                    range(20),
                )
            )

        assert [int(done.stdout) for done in results] == list(range(20))
        assert transport.channels_opened - before == 20


class EndContract:
    """Ending programs: in time, with all their children, and never more than that."""

    def test_a_deadline_ends_the_program_and_its_children(
        self, transport: Transport, host_dir: Path
    ):
        script = 'sleep 600 & echo $! >"$1/child"; echo $$ >"$1/self"; wait'

        with pytest.raises(RemoteTimeout, match="is gone"):
            transport.run(["sh", "-c", script, "sh", str(host_dir)], deadline_s=1.0)

        assert not is_running(pid_in(host_dir / "self"))
        assert not is_running(pid_in(host_dir / "child"))

    def test_a_program_that_ignores_sigterm_is_killed(self, transport: Transport, host_dir: Path):
        script = 'trap "" TERM INT HUP; echo $$ >"$1/self"; while :; do sleep 1; done'

        with pytest.raises(RemoteTimeout, match="is gone"):
            transport.run(["sh", "-c", script, "sh", str(host_dir)], deadline_s=1.0)

        assert not is_running(pid_in(host_dir / "self"))

    def test_a_program_is_ended_even_behind_input_that_it_does_not_read(
        self, transport: Transport, host_dir: Path
    ):
        script = 'echo $$ >"$1/self"; exec sleep 600'

        with pytest.raises(RemoteTimeout, match="is gone"):
            transport.run(
                ["sh", "-c", script, "sh", str(host_dir)], stdin=b"x" * 9 * MIB, deadline_s=1.0
            )

        assert not is_running(pid_in(host_dir / "self"))

    def test_a_flood_of_output_does_not_outlive_the_deadline(self, transport: Transport):
        with pytest.raises((RemoteTimeout, RemoteFailed)):
            transport.run(["yes"], deadline_s=1.0)

        assert transport.run(["echo", "next"], deadline_s=30).stdout == b"next\n"

    def test_children_that_a_program_leaves_behind_end_with_it(
        self, transport: Transport, host_dir: Path
    ):
        script = 'sleep 600 & echo $! >"$1/child"; exit 3'

        done = transport.run(["sh", "-c", script, "sh", str(host_dir)], deadline_s=30)

        assert done.exit_code == 3
        assert not is_running(pid_in(host_dir / "child"))

    def test_a_daemon_with_a_session_of_its_own_stays_and_delays_nothing(
        self, transport: Transport, host_dir: Path
    ):
        # It keeps our stdout open, as careless daemons do.
        script = 'setsid sh -c "echo \\$\\$ >$1/daemon; exec sleep 600" & sleep 0.5; echo left'

        done = transport.run(["sh", "-c", script, "sh", str(host_dir)], deadline_s=30)

        daemon = pid_in(host_dir / "daemon")
        try:
            assert done.stdout == b"left\n"
            assert is_running(daemon)
        finally:
            transport.run(["kill", "-KILL", str(daemon)], deadline_s=30)

    def test_close_ends_what_still_runs_and_says_so_to_who_waits(
        self, transport: Transport, host_dir: Path
    ):
        script = 'echo $$ >"$1/self"; exec sleep 600'
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(
                transport.run, ["sh", "-c", script, "sh", str(host_dir)], deadline_s=600
            )
            pid = pid_in(host_dir / "self")

            transport.close()

            assert not is_running(pid)
            with pytest.raises(ConnectionLost, match="was stopped"):
                waiting.result(10)

    def test_nothing_runs_after_close(self, transport: Transport):
        assert transport.is_open()
        transport.close()

        assert not transport.is_open()
        with pytest.raises(ConnectionLost):
            transport.run(["true"], deadline_s=30)

    def test_close_can_be_called_again(self, transport: Transport):
        transport.close()
        transport.close()


class TransportContract(RunContract, EndContract, FileContract, ForwardContract):
    """All of it."""
