"""A directory that was moved, linked or mounted over: nothing is written to what is there now."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.errors import InputError
from fleetctl.transaction.failure import FilesInConflict, NotBack
from fleetctl.transaction.step import MakeDirectory, WriteFile
from tests.agent.conftest import NEW_MODULE, SCRIPT, Ground, sha256

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")


def moved_and_linked(ground: Ground, folder: Path) -> Path:
    """Move a directory to a bigger disk, and link to it."""
    elsewhere = ground.root / "bigger"
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    return elsewhere


def linked_to_a_strangers(ground: Ground, folder: Path) -> Path:
    """Put a link to what somebody else has in the place of a directory that was moved."""
    elsewhere = ground.root / "aside"
    folder.rename(elsewhere)
    stranger = ground.root / "stranger"
    shutil.copytree(elsewhere, stranger)
    for path in stranger.rglob("*"):
        if path.is_file():
            path.write_bytes(b"a stranger's")
    folder.symlink_to(stranger)
    return elsewhere


def left_dangling(ground: Ground, folder: Path) -> Path:
    """Leave a link to nothing in the place of a directory that was moved."""
    elsewhere = ground.root / "aside"
    folder.rename(elsewhere)
    folder.symlink_to("/no/such/place")
    return elsewhere


DEEDS = [moved_and_linked, linked_to_a_strangers, left_dangling]


def facts(folder: Path) -> dict[str, object]:
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (status.st_ino, status.st_mode, status.st_mtime_ns, content)
    return found


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("name", ["serve", "fresh", "fresh/deep"])
def test_a_directory_that_became_a_symlink_is_told_and_comes_back_once_it_is_put_back(
    ground, deed, name
):
    before = ground.look()
    ground.apply()
    folder = ground.tree / name
    elsewhere = deed(ground, folder)
    there = {path: facts(path) for path in (elsewhere, folder.resolve()) if path.exists()}

    with pytest.raises(FilesInConflict) as left:
        ground.agent.restore(transaction="tx")
    told = {conflict.path: conflict.diff for conflict in left.value.conflicts}
    inside = [path for path in told if path.startswith(f"{folder}/")]
    for path in inside:
        assert f"{folder} has become a symlink to {folder.readlink()}" in told[path]
        assert "put the directory in its place again" in told[path]
    assert inside or set(told) == {str(ground.tree / "fresh"), str(folder)}
    if inside:
        with pytest.raises(NotBack, match="put the directory in its place again"):
            ground.agent.restore(transaction="tx", force=True)

    assert {path: facts(path) for path in there} == there
    assert ground.script.read_bytes() == SCRIPT
    folder.unlink()
    elsewhere.rename(folder)
    ground.agent.restore(transaction="tx")
    assert ground.look() == before


@pytest.mark.parametrize("name", ["serve/__pycache__", "serve"])
def test_bytecode_behind_a_link_that_somebody_made_is_neither_removed_nor_written(ground, name):
    before = ground.look()
    ground.apply()
    folder = ground.tree / name
    moved = linked_to_a_strangers(ground, folder)
    stranger = ground.root / "stranger"
    cache = stranger if name.endswith("__pycache__") else stranger / "__pycache__"
    cached = [p.name for p in (moved.rglob("*.pyc")) if p.name.startswith("__init__")]
    theirs = cache / cached[0].replace("__init__", "indexer")
    theirs.write_bytes(b"a stranger's")
    there = facts(stranger)

    with contextlib.suppress(FilesInConflict):
        ground.agent.restore(transaction="tx")

    assert facts(stranger) == there
    folder.unlink()
    moved.rename(folder)
    ground.agent.restore(transaction="tx")
    kept = {path: of for path, of in before.items() if "__pycache__" not in path}
    assert {p: f for p, f in ground.look().items() if "__pycache__" not in p} == kept


def test_a_link_on_the_way_of_an_import_that_leads_elsewhere_now_spares_the_bytecode_there(ground):
    for version in ("v1", "v2"):
        (ground.tree / version).mkdir()
        (ground.tree / version / "m.py").write_bytes(SCRIPT)
        (ground.tree / version / "__pycache__").mkdir()
        (ground.tree / version / "__pycache__" / "m.cpython-311.pyc").write_bytes(b"cached")
    current = ground.tree / "current"
    current.symlink_to("v1")
    before = ground.look()
    ground.apply((WriteFile(str(current / "m.py"), sha256(NEW_MODULE), None, sha256(SCRIPT)),))
    current.unlink()
    current.symlink_to("v2")

    ground.agent.restore(transaction="tx")

    current.unlink()
    current.symlink_to("v1")
    assert ground.look() == before


@contextlib.contextmanager
def mounted(*words: str) -> Iterator[None]:
    """Mount something as long as the block lasts; the last word is where."""
    if subprocess.run(["mount", *words], check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        yield
    finally:
        subprocess.run(["umount", words[-1]], check=False)


@needs_root
@pytest.mark.parametrize("what", ["other files", "the old files", "an empty file system"])
@pytest.mark.parametrize("force", [False, True])
def test_what_is_mounted_over_a_directory_is_not_taken_for_it(ground, what, force):
    before = ground.look()
    folder = ground.module.parent
    other = ground.root / "other"
    shutil.copytree(folder, other)
    if what == "other files":
        (other / "indexer.py").write_bytes(NEW_MODULE)
    there = facts(other)
    ground.kill_watcher(ground.apply())
    bind = ["-t", "tmpfs", "none"] if what == "an empty file system" else ["--bind", str(other)]

    with mounted(*bind, str(folder)):
        with pytest.raises(NotBack, match=f"something is mounted over it, at {folder}"):
            ground.agent.restore(transaction="tx", force=force)
        assert facts(other) == there

    ground.agent.restore(transaction="tx")
    assert ground.look() == before


@needs_root
@pytest.mark.parametrize("content", [b"VALUE = 'old'\n", NEW_MODULE, b"VALUE = 'theirs'\n"])
def test_what_is_mounted_on_a_single_file_is_not_taken_for_it(ground, content):
    before = ground.look()
    other = ground.root / "other.py"
    other.write_bytes(content)
    ground.kill_watcher(ground.apply())

    with mounted("--bind", str(other), str(ground.module)):
        with pytest.raises(NotBack, match="something is mounted on it"):
            ground.agent.restore(transaction="tx")
        assert other.read_bytes() == content

    ground.agent.restore(transaction="tx")
    assert ground.look() == before


@needs_root
def test_a_file_system_that_is_no_longer_mounted_is_named_and_nothing_is_made_below_it(ground):
    disk = ground.tree / "disk"
    disk.mkdir()
    (disk / "m.py").write_bytes(b"beneath")
    steps = (
        WriteFile(str(disk / "m.py"), sha256(NEW_MODULE), None, sha256(SCRIPT)),
        MakeDirectory(str(disk / "made")),
    )
    backing = ground.root / "backing"
    backing.mkdir()
    (backing / "m.py").write_bytes(SCRIPT)
    (backing / "m.py").chmod(0o640)
    before = facts(backing)
    with mounted("--bind", str(backing), str(disk)):
        ground.kill_watcher(ground.apply(steps))

    with pytest.raises(NotBack, match=f"no longer mounted at {disk}"):
        ground.agent.restore(transaction="tx")
    assert [path.name for path in disk.iterdir()] == ["m.py"]
    assert (disk / "m.py").read_bytes() == b"beneath"

    with mounted("--bind", str(backing), str(disk)):
        ground.agent.restore(transaction="tx")
    assert [f[1:] for f in facts(backing).values()] == [f[1:] for f in before.values()]


@needs_root
def test_a_file_system_that_a_new_container_mounts_from_elsewhere_is_the_same_one(ground):
    disk, one, other = (ground.root / name for name in ("tree/disk", "one", "other"))
    disk.mkdir()
    one.mkdir()
    (one / "m.py").write_bytes(SCRIPT)
    step = WriteFile(str(disk / "m.py"), sha256(NEW_MODULE), None, sha256(SCRIPT))
    with mounted("--bind", str(one), str(disk)):
        ground.kill_watcher(ground.apply((step,)))
    one.rename(other)

    with mounted("--bind", str(other), str(disk)):
        ground.agent.restore(transaction="tx")

    assert (other / "m.py").read_bytes() == SCRIPT


@needs_root
def test_a_mount_that_stays_can_be_settled_for(ground):
    ground.kill_watcher(ground.apply())
    with mounted("-t", "tmpfs", "none", str(ground.module.parent)):
        ground.agent.settle("tx")

        assert ground.agent.status().transactions == ()
        assert ground.script.read_bytes() == SCRIPT


@needs_root
def test_a_file_that_is_mounted_on_its_own_is_refused_before_the_first_change(ground):
    before = ground.look()
    other = ground.root / "other.py"
    other.write_bytes(b"VALUE = 'old'\n")

    with (
        mounted("--bind", str(other), str(ground.module)),
        pytest.raises(InputError, match="cannot change") as refused,
    ):
        ground.apply()

    assert "something is mounted on it" in refused.value.why
    assert ground.look() == before
