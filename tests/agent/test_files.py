"""Replacing keeps everything about a file that was not asked to change."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

from fleetctl.agent.files import (
    ChangedMeanwhile,
    Look,
    look,
    remove_expected,
    replace,
    set_metadata,
)
from fleetctl.agent.walk import PathRefused, resolved
from fleetctl.transaction.image import ABSENT

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


def seen(path):
    with resolved(str(path)) as place:
        return look(place)


def bring_back(path, found, *, free=False):
    with resolved(str(path)) as place:
        finish = partial(set_metadata, image=found.image)
        replace(place, ".fleetctl-temp", found.content, finish, free=free)


def test_nothing_there_is_told_apart_from_an_empty_file(tmp_path):
    (tmp_path / "empty").write_bytes(b"")

    assert seen(tmp_path / "absent") == ABSENT
    assert isinstance(seen(tmp_path / "empty"), Look)


@needs_root
def test_owner_mode_time_and_attributes_come_back_on_a_new_inode(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    os.chown(path, 1234, 2345)
    path.chmod(0o2751)
    os.setxattr(path, "user.one", b"\x00\xff")
    os.utime(path, ns=(5, 1_234_567_890_123_456_789))
    found = seen(path)
    path.unlink()
    path.write_bytes(b"other")

    bring_back(path, found)

    assert seen(path) == found


def test_an_acl_is_kept_and_one_that_a_directory_would_give_is_not_added(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    if subprocess.run(["setfacl", "-m", "u:1:r", str(path)], check=False).returncode:
        pytest.skip("no ACLs here")
    with_acl = seen(path)
    plain = tmp_path / "plain"
    plain.write_bytes(b"plain")
    without = seen(plain)
    subprocess.run(["setfacl", "-d", "-m", "u:2:rw", str(tmp_path)], check=True)

    bring_back(path, with_acl)
    bring_back(plain, without)

    assert seen(path) == with_acl
    assert seen(plain) == without


def test_a_file_that_appears_in_the_last_moment_is_not_replaced(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"first")
    found = seen(path)

    with pytest.raises(FileExistsError):
        bring_back(path, found, free=True)

    assert path.read_bytes() == b"first"


def test_a_temporary_file_of_an_earlier_attempt_is_replaced_not_followed(tmp_path):
    path, victim = tmp_path / "file", tmp_path / "victim"
    path.write_bytes(b"content")
    victim.write_bytes(b"precious")
    (tmp_path / ".fleetctl-temp").symlink_to(victim)

    bring_back(path, seen(path))

    assert victim.read_bytes() == b"precious"
    assert not (tmp_path / ".fleetctl-temp").exists()


def test_a_file_that_is_being_written_is_not_captured(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    real_read = os.read

    def read_while_it_grows(fd, most):
        with path.open("ab") as file:
            file.write(b"more")
        return real_read(fd, most) if path.stat().st_size < 30 else b""

    monkeypatch.setattr(os, "read", read_while_it_grows)

    with pytest.raises(PathRefused, match="being written"):
        seen(path)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EPERM, errno.EIO])
def test_a_failure_half_way_leaves_the_old_file(tmp_path, monkeypatch, code):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    found = seen(path)

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match=os.strerror(code)):
        bring_back(path, Look(found.image, b"new"))

    assert path.read_bytes() == b"old"


def replace_while(path, edit, *, expected=b"as found\n"):
    """Replace a file, and let somebody edit it after the last look: as late as can be."""

    def finish(_fd):
        edit()

    with resolved(str(path)) as place:
        digest = hashlib.sha256(expected).hexdigest()
        replace(place, ".fleetctl-temp", b"ours\n", finish, free=False, expected_sha256=digest)


def append(path):
    with path.open("ab") as file:
        file.write(b"# by hand\n")


def rename_over(path):
    other = path.with_name("other")
    other.write_bytes(b"# by hand\n")
    other.rename(path)


def truncate(path):
    path.write_bytes(b"")


def make_a_link(path):
    path.unlink()
    path.symlink_to("somewhere")


def make_a_directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("edit", [make_a_link, make_a_directory])
def test_what_took_the_place_of_a_file_after_the_last_look_stays_there(tmp_path, edit):
    path = tmp_path / "file"
    path.write_bytes(b"as found\n")

    with pytest.raises(ChangedMeanwhile):
        replace_while(path, partial(edit, path))

    assert path.is_symlink() or path.is_dir()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("edit", [append, rename_over, truncate])
def test_an_edit_between_the_last_look_and_the_replacement_is_kept(tmp_path, edit):
    path = tmp_path / "file"
    path.write_bytes(b"as found\n")
    path.chmod(0o640)

    with pytest.raises(ChangedMeanwhile):
        replace_while(path, partial(edit, path))

    mine = path.read_bytes()
    edit(path)
    assert mine == path.read_bytes().replace(b"# by hand\n# by hand\n", b"# by hand\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_who_still_writes_to_a_file_that_is_being_replaced_is_waited_for(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"as found\n")
    program = "exec 3>>$1; echo open; read line; sleep 0.3; echo '# by hand' >&3"
    argv = ["bash", "-c", program, "bash", str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, **pipes) as writer:
        assert writer.stdout.readline() == b"open\n"

        def go():
            writer.stdin.write(b"go\n")
            writer.stdin.flush()

        with pytest.raises(ChangedMeanwhile):
            replace_while(path, go)

    assert path.read_bytes() == b"as found\n# by hand\n"


OPEN_WHILE_LEASED = """
import fcntl, os, sys
from fleetctl.agent.exchange import wait_for_writers

ask, path = fcntl.fcntl, sys.argv[1]

def ask_and_be_asked(fd, what, value=0):
    said = ask(fd, what, value)
    if (what, value) == (fcntl.F_SETLEASE, fcntl.F_RDLCK):
        try:
            os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        except BlockingIOError:
            print("opened while leased")
    return said

fcntl.fcntl = ask_and_be_asked
wait_for_writers(os.open(path, os.O_RDONLY))
print("alive")
"""


def test_who_opens_a_file_while_it_is_looked_at_does_not_end_us(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"as found\n")
    argv = [sys.executable, "-c", OPEN_WHILE_LEASED, str(path)]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, "opened while leased\nalive\n"), done.stderr


@pytest.mark.parametrize("free", [True, False])
def test_what_cannot_be_replaced_stays_and_nothing_is_left_beside_it(tmp_path, free):
    (tmp_path / "file").mkdir()
    with (
        resolved(str(tmp_path / "file")) as place,
        pytest.raises(OSError, match=r"exists|directory"),
    ):
        replace(place, ".fleetctl-temp", b"ours\n", lambda _: None, free=free)

    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


class Ended(Exception):
    pass


def test_a_signal_while_a_writer_is_waited_for_puts_the_file_back(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"as found\n")
    was = path.stat()

    def end(_number, _frame):
        raise Ended

    before = signal.signal(signal.SIGALRM, end)
    try:
        with path.open("ab"), pytest.raises(Ended):
            replace_while(path, lambda: signal.setitimer(signal.ITIMER_REAL, 0.1))
    finally:
        signal.signal(signal.SIGALRM, before)

    assert (path.stat().st_ino, path.read_bytes()) == (was.st_ino, b"as found\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_nobody_touched_is_replaced_and_nothing_else_stays(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"as found\n")

    replace_while(path, lambda: None)

    assert path.read_bytes() == b"ours\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("edit", [append, rename_over, truncate])
def test_a_file_that_was_edited_is_not_removed(tmp_path, edit):
    path = tmp_path / "file"
    path.write_bytes(b"as found\n")
    edit(path)
    mine = path.read_bytes()

    with resolved(str(path)) as place, pytest.raises(ChangedMeanwhile):
        remove_expected(place, ".fleetctl-temp", hashlib.sha256(b"as found\n").hexdigest())

    assert path.read_bytes() == mine
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_where_names_cannot_be_exchanged_a_file_is_replaced_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("fleetctl.agent.files.exchange", lambda *_: False)
    path = tmp_path / "file"
    path.write_bytes(b"as found\n")

    replace_while(path, lambda: None)

    assert path.read_bytes() == b"ours\n"
