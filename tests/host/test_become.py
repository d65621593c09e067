"""sudo, the real one: without a password, with one, and with the wrong one."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import HostError, LoginRefused, RemoteTimeout
from fleetctl.host.become import SudoTransport
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.escalation import Secret
from fleetctl.host.shell import ShellTransport
from tests.host.processes import is_running, pid_in
from tests.host.sshd import Person, Sshd

Open = Callable[[Endpoint, Backend], ShellTransport]

pytestmark = pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("sudo") is None, reason="needs root and sudo"
)


@pytest.fixture
def password() -> str:
    return f"canary-{uuid.uuid4().hex}"


@pytest.fixture
def person(make_person: Callable[..., Person], password: str) -> Person:
    return make_person(password=password)


@pytest.fixture
def allow(person: Person) -> Iterator[Callable[[str], None]]:
    """Write a rule for the person, and take it back."""
    rules = Path("/etc/sudoers.d") / person.name

    def write(rule: str) -> None:
        rules.write_text(f"{rule.replace('ME', person.name)}\n")
        rules.chmod(0o440)
        subprocess.run(["visudo", "-cq"], check=True)

    yield write
    rules.unlink(missing_ok=True)


@pytest.fixture
def inner(
    person: Person, shared_sshd: Sshd, open_transport: Open, ssh_backend: Backend
) -> ShellTransport:
    return open_transport(shared_sshd.endpoint(user=person.name), ssh_backend)


def whoami(transport: SudoTransport) -> bytes:
    done = transport.run(["sh", "-c", "id -un; cat; printf err >&2"], stdin=b"in", deadline_s=30)
    assert done.stderr == b"err"
    return done.stdout


@pytest.mark.parametrize("tags", ["NOPASSWD:", "PASSWD:"])
@pytest.mark.parametrize("defaults", ["use_pty", "!use_pty"])
def test_programs_run_as_root_with_exactly_their_bytes(
    inner: ShellTransport, allow: Callable[[str], None], password: str, tags: str, defaults: str
):
    allow(f"Defaults:ME {defaults}\nME ALL=(ALL) {tags} ALL")

    assert whoami(SudoTransport(inner, password=Secret(password))) == b"root\nin"


def test_no_password_is_needed_where_none_is_asked_for(
    inner: ShellTransport, allow: Callable[[str], None]
):
    allow("ME ALL=(ALL) NOPASSWD: ALL")

    assert whoami(SudoTransport(inner)) == b"root\nin"


def test_another_user_than_root(
    inner: ShellTransport, allow: Callable[[str], None], password: str, person: Person
):
    allow("ME ALL=(ALL) ALL")

    become = SudoTransport(inner, password=Secret(password), user="nobody")
    assert whoami(become) == b"nobody\nin"


def test_a_password_that_is_missing_is_said(inner: ShellTransport, allow: Callable[[str], None]):
    allow("ME ALL=(ALL) ALL")

    with pytest.raises(LoginRefused, match="did not let us through") as caught:
        SudoTransport(inner).run(["id"], deadline_s=30)

    assert "password" in caught.value.why


def test_a_wrong_password_is_offered_once_and_named(
    inner: ShellTransport, allow: Callable[[str], None], person: Person
):
    allow(f"Defaults:ME logfile=/tmp/{person.name}.log\nME ALL=(ALL) ALL")

    with pytest.raises(LoginRefused, match="the password was not accepted") as caught:
        SudoTransport(inner, password=Secret("not-the-password")).run(["id"], deadline_s=30)

    log = Path(f"/tmp/{person.name}.log")
    text = log.read_text() if log.exists() else ""
    log.unlink(missing_ok=True)
    assert "3 incorrect" not in text
    assert "not-the-password" not in f"{caught.value.what}{caught.value.why}{text}"


def test_somebody_who_may_not_use_sudo_is_told_so(inner: ShellTransport, password: str):
    with pytest.raises(LoginRefused, match="did not let us through") as caught:
        SudoTransport(inner, password=Secret(password)).run(["id"], deadline_s=30)

    assert password not in str(caught.value)
    assert "/bin/sh" in caught.value.next_step


def test_sudo_in_any_language_is_understood(
    inner: ShellTransport, allow: Callable[[str], None], password: str
):
    # The prompt is ours, so what sudo says around it does not matter, nor a lecture before it.
    allow("Defaults:ME lecture=always, badpass_message=Nein\nME ALL=(ALL) ALL")

    assert whoami(SudoTransport(inner, password=Secret(password))) == b"root\nin"


@pytest.mark.parametrize("defaults", ["use_pty", "!use_pty"])
def test_a_program_of_root_is_ended_in_time(
    inner: ShellTransport,
    allow: Callable[[str], None],
    password: str,
    tmp_path: Path,
    defaults: str,
):
    allow(f"Defaults:ME {defaults}\nME ALL=(ALL) ALL")
    script = f'trap "" TERM; sleep 600 & echo $! >{tmp_path}/child; echo $$ >{tmp_path}/pid; wait'

    with pytest.raises(RemoteTimeout, match="is gone"):
        SudoTransport(inner, password=Secret(password)).run(["sh", "-c", script], deadline_s=2)

    assert not is_running(pid_in(tmp_path / "pid"))
    assert not is_running(pid_in(tmp_path / "child"))


def test_files_of_root_are_written_and_read(
    inner: ShellTransport, allow: Callable[[str], None], password: str, tmp_path: Path
):
    allow("ME ALL=(ALL) ALL")
    become = SudoTransport(inner, password=Secret(password))
    folder = tmp_path / "secret"
    folder.mkdir(mode=0o700)

    become.put(b"mine", str(folder / "file"), mode=0o600)

    assert become.get(str(folder / "file")) == b"mine"
    assert (folder / "file").stat().st_uid == 0


def test_the_password_is_nowhere_but_on_stdin(
    inner: ShellTransport,
    allow: Callable[[str], None],
    password: str,
    person: Person,
    caplog: pytest.LogCaptureFixture,
):
    log = Path(f"/tmp/{person.name}.log")
    allow(f"Defaults:ME logfile={log}\nME ALL=(ALL) ALL")
    caplog.set_level(logging.DEBUG)
    become = SudoTransport(inner, password=Secret(password))
    seen: list[Path] = []
    is_over = threading.Event()

    def look_everywhere() -> None:
        clock = SystemClock()
        while not is_over.is_set():
            for name in ("cmdline", "environ"):
                for path in Path("/proc").glob(f"[0-9]*/{name}"):
                    try:
                        if password.encode() in path.read_bytes():
                            seen.append(path)
                    except OSError:
                        continue
            clock.sleep(0.01)

    watcher = threading.Thread(target=look_everywhere)
    watcher.start()
    try:
        become.run(["sleep", "0.5"], stdin=b"x", deadline_s=30)
        errors: list[HostError] = []
        for secret in (Secret(password), Secret(f"{password}x")):
            try:
                SudoTransport(inner, password=secret).get("/nowhere")
            except HostError as error:
                errors.append(error)
    finally:
        is_over.set()
        watcher.join()

    assert seen == []
    assert len(errors) == 2
    assert password not in "".join(f"{e.what}{e.why}{e.next_step}{e!r}" for e in errors)
    assert password not in caplog.text
    assert password not in log.read_text()
    assert password not in repr(become.__dict__)
    log.unlink()


def test_a_secret_never_shows_itself():
    secret = Secret("s3cret")

    assert "s3cret" not in f"{secret} {secret!r} {[secret]} {vars(type(secret))}"
    assert secret.reveal() == "s3cret"
    assert secret == Secret("s3cret")
    assert secret != Secret("other")
