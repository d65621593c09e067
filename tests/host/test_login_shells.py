"""Real accounts with start-up files that print, ask or dawdle, and with unusual login shells."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.errors import RemoteFailed, RemoteTimeout
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.shell import ShellTransport
from tests.host.processes import processes_with
from tests.host.sshd import Person, Sshd

Open = Callable[[Endpoint, Backend], ShellTransport]
MakePerson = Callable[..., Person]

NOISE = """
echo "Welcome to $(hostname)"
echo "load is high" >&2
tty
stty -a
printf 'no newline at the end'
"""


def write(person: Person, name: str, text: str) -> None:
    path = person.home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for folder in (path, *path.parents[: len(path.relative_to(person.home).parts) - 1]):
        shutil.chown(folder, person.name)


def assert_exact(transport: ShellTransport) -> None:
    content = bytes(range(256)) * 100
    done = transport.run(["sh", "-c", "cat; printf err >&2; exit 3"], stdin=content, deadline_s=30)

    assert (done.exit_code, done.stdout, done.stderr) == (3, content, b"err")


class TestStartUpFiles:
    """bash reads ~/.bashrc for every command that sshd runs."""

    @pytest.fixture
    def person(self, make_person: MakePerson) -> Person:
        return make_person(shell=shutil.which("bash") or pytest.skip("no bash on this machine"))

    def test_what_they_print_is_nobodys_output(
        self, person: Person, shared_sshd: Sshd, open_transport: Open, ssh_backend: Backend
    ):
        write(person, ".bashrc", NOISE)
        write(person, ".bash_logout", "echo Bye; echo Bye >&2")

        assert_exact(open_transport(shared_sshd.endpoint(user=person.name), ssh_backend))

    def test_their_time_is_not_the_programs(
        self, person: Person, shared_sshd: Sshd, open_transport: Open, ssh_backend: Backend
    ):
        write(person, ".bashrc", "sleep 2.5\n" + NOISE)

        transport = open_transport(shared_sshd.endpoint(user=person.name), ssh_backend)

        assert transport.run(["echo", "at last"], deadline_s=2).stdout == b"at last\n"

    def test_a_question_is_quoted_and_answered_by_nobody(
        self,
        person: Person,
        shared_sshd: Sshd,
        open_transport: Open,
        ssh_backend: Backend,
        tmp_path: Path,
    ):
        write(person, ".bashrc", "printf 'Which environment [1/2]? '; read answer\n")
        endpoint = shared_sshd.endpoint(user=person.name, shell_deadline_s=1.5)

        with pytest.raises(RemoteTimeout, match="never ran our command") as caught:
            open_transport(endpoint, ssh_backend).run(
                ["touch", str(person.home / "ran")], stdin=b"1\n", deadline_s=30
            )

        assert "Which environment [1/2]?" in caught.value.why
        assert not (person.home / "ran").exists()

    def test_start_up_files_that_end_the_shell_are_quoted(
        self, person: Person, shared_sshd: Sshd, open_transport: Open, ssh_backend: Backend
    ):
        write(person, ".bashrc", "echo 'quota exceeded'; exit 1\n")
        transport = open_transport(shared_sshd.endpoint(user=person.name), ssh_backend)

        with pytest.raises(RemoteFailed, match="did not run our command") as caught:
            transport.run(["true"], deadline_s=30)

        assert "quota exceeded" in caught.value.why

    def test_a_program_of_an_ordinary_user_is_ended_in_time(
        self, person: Person, shared_sshd: Sshd, open_transport: Open, ssh_backend: Backend
    ):
        word = f"{600_000 + int(person.name[-4:], 16)}"
        transport = open_transport(shared_sshd.endpoint(user=person.name), ssh_backend)

        with pytest.raises(RemoteTimeout, match="is gone"):
            transport.run(["sleep", word], deadline_s=0.5)

        assert processes_with(word) == []


class TestShells:
    """Whatever stands in /etc/passwd."""

    @pytest.mark.parametrize("name", ["sh", "bash", "zsh", "fish", "tcsh", "ksh", "mksh"])
    def test_every_shell_passes_bytes_on_unchanged(
        self, name: str, make_person: MakePerson, shared_sshd: Sshd, open_transport: Open
    ):
        shell = shutil.which(name)
        if shell is None:
            pytest.skip(f"no {name} on this machine")
        person = make_person(shell=shell)
        for file in (".zshenv", ".cshrc", ".config/fish/config.fish"):
            write(person, file, "echo noise\n")

        assert_exact(open_transport(shared_sshd.endpoint(user=person.name), Backend.PARAMIKO))

    def test_a_wrapper_around_a_shell_that_prints_and_does_not_replace_itself(
        self,
        make_person: MakePerson,
        shared_sshd: Sshd,
        open_transport: Open,
        ssh_backend: Backend,
        public_folder: Path,
    ):
        wrapper = public_folder / "wrapper"
        wrapper.write_text(
            f'#!/bin/sh\n{NOISE}\nsleep 0.5\n/bin/sh "$@"\necho over; echo over >&2\n'
        )
        wrapper.chmod(0o755)
        person = make_person(shell=str(wrapper))

        assert_exact(open_transport(shared_sshd.endpoint(user=person.name), ssh_backend))

    def test_an_account_without_a_shell_is_quoted(
        self,
        make_person: MakePerson,
        shared_sshd: Sshd,
        open_transport: Open,
        ssh_backend: Backend,
    ):
        nologin = shutil.which("nologin", path="/usr/sbin:/sbin")
        if nologin is None:
            pytest.skip("no nologin on this machine")
        person = make_person(shell=nologin)
        transport = open_transport(shared_sshd.endpoint(user=person.name), ssh_backend)

        with pytest.raises(RemoteFailed, match="did not run our command") as caught:
            transport.run(["true"], deadline_s=30)

        assert "not available" in caught.value.why


def test_the_fixture_makes_accounts_that_really_exist(make_person: MakePerson):
    person = make_person()

    assert subprocess.run(["id", person.name], capture_output=True, check=False).returncode == 0
