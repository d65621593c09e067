"""Files of this machine are replaced so that nothing but their content changes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fleetctl.environment.disk import remove_file, replace_file
from fleetctl.environment.local import edit_local_file
from fleetctl.errors import InputError


def test_mode_and_attributes_stay_and_nothing_is_left_beside(tmp_path):
    path = tmp_path / "serve.sh"
    path.write_bytes(b"old")
    path.chmod(0o750)
    attributes = supported_attribute(path)
    replace_file(path, b"old", b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == attributes
    assert [p.name for p in tmp_path.iterdir()] == ["serve.sh"]


def supported_attribute(path: Path) -> dict[str, bytes]:
    try:
        os.setxattr(path, "user.note", b"1")
    except OSError:
        return {}
    return {"user.note": b"1"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_owner_stays(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    os.chown(path, 1234, 2345)
    replace_file(path, b"old", b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "serve.sh").write_bytes(b"old")
    link = tmp_path / "serve.sh"
    link.symlink_to("v1/serve.sh")
    replace_file(link, b"old", b"new")
    assert link.is_symlink()
    assert (tmp_path / "v1" / "serve.sh").read_bytes() == b"new"


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"somebody else's")
    with pytest.raises(InputError, match="was not edited"):
        replace_file(path, b"old", b"new")
    assert path.read_bytes() == b"somebody else's"


def test_a_file_that_must_be_new_is_made_with_its_directories(tmp_path):
    path = tmp_path / "etc" / "fleetctl" / "x.env"
    replace_file(path, None, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    remove_file(path)
    remove_file(path)
    assert not path.exists()


def test_a_file_that_can_not_be_written_says_so(tmp_path):
    path = tmp_path / "file" / "x"
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError) as caught:
        replace_file(path, None, b"new")
    assert caught.value.next_step
    with pytest.raises(InputError):
        remove_file(tmp_path)


def test_a_file_with_other_names_is_left_alone_under_all_of_them(tmp_path):
    path, other = tmp_path / "serve.sh", tmp_path / "other.sh"
    path.write_bytes(b"a")
    other.hardlink_to(path)
    with pytest.raises(InputError, match="hard links"):
        replace_file(path, b"a", b"b")
    assert path.samefile(other)
    assert other.read_bytes() == b"a"


@pytest.mark.parametrize("name", ["pipe.sh", "device.sh", "directory.sh"])
def test_what_is_no_regular_file_is_refused_and_never_waited_for(name, tmp_path):
    os.mkfifo(tmp_path / "pipe.sh")
    (tmp_path / "device.sh").symlink_to("/dev/zero")
    (tmp_path / "directory.sh").mkdir()
    with pytest.raises(InputError, match="no regular file"):
        edit_local_file(tmp_path / name, {"A": "1"})


def test_a_script_that_sources_a_pipe_is_edited_without_reading_it(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    path = tmp_path / "serve.sh"
    path.write_text(f"export A=1\n. {tmp_path}/pipe\nexec vllm serve x\n")
    (edit,) = edit_local_file(path, {"A": "2"})
    assert edit.new is not None
    assert edit.new.endswith(b"export A=2\nexec vllm serve x\n")
