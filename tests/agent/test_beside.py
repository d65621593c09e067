"""A kill in the very instant of a replacement: what was moved aside unseen is not lost."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from fleetctl.agent import transactions
from fleetctl.transaction.failure import FilesInConflict, NotBack
from fleetctl.transaction.image import FileBefore


def temp_beside(ground, path: Path) -> Path:
    """Return the temporary file that the transaction uses beside a file."""
    (found,) = transactions.all_newest_first(ground.edges)
    changed = [change.before for change in found.opened.changes]
    (name,) = [b.temp for b in changed if isinstance(b, FileBefore) and b.path == str(path)]
    return path.with_name(name)


def as_found(temp, ground):
    temp.write_bytes(b"#!/bin/bash\nexport FLAG=0\n")


def half_of_it(temp, ground):
    temp.write_bytes(b"#!/bin/b")


def half_of_ours(temp, ground):
    temp.write_bytes(ground.script.read_bytes()[:-3])


def nothing_yet(temp, ground):
    temp.write_bytes(b"")


def a_second_name(temp, ground):
    os.link(ground.script, temp)


@pytest.mark.parametrize(
    "left",
    [as_found, half_of_it, half_of_ours, nothing_yet, a_second_name],
    ids=lambda f: f.__name__,
)
def test_what_is_known_goes_and_the_host_is_as_it_was(ground, left):
    before = ground.look()
    ground.apply()
    left(temp_beside(ground, ground.script), ground)

    ground.agent.restore(transaction="tx")

    assert ground.look() == before


def an_edit(temp):
    temp.write_bytes(b"#!/bin/bash\nexport FLAG=0\n# by hand\n")


def a_link(temp):
    temp.symlink_to("somewhere")


def a_directory(temp):
    temp.mkdir()
    (temp / "inside").write_bytes(b"mine")


@pytest.mark.parametrize("left", [an_edit, a_link, a_directory], ids=lambda f: f.__name__)
def test_what_is_somebodys_gets_its_name_back_and_is_a_conflict(ground, left):
    before = ground.look()
    ground.apply()
    temp = temp_beside(ground, ground.script)
    left(temp)
    was = temp.lstat()

    with pytest.raises(FilesInConflict) as told:
        ground.agent.restore(transaction="tx")

    assert [conflict.path for conflict in told.value.conflicts] == [str(ground.script)]
    assert ground.script.lstat().st_ino == was.st_ino
    assert not os.path.lexists(temp)
    kept = {name for name in {*before, *ground.look()} if name.startswith("tree/serve.sh")}
    after = {name: found for name, found in ground.look().items() if name not in kept}
    assert after == {name: found for name, found in before.items() if name not in kept}


def test_what_is_somebodys_comes_back_also_where_our_file_was_removed(ground):
    ground.apply()
    temp = temp_beside(ground, ground.script)
    an_edit(temp)
    ground.script.unlink()

    with pytest.raises(FilesInConflict):
        ground.agent.restore(transaction="tx")

    assert ground.script.read_bytes().endswith(b"# by hand\n")
    assert not temp.exists()


def test_two_versions_of_somebodys_are_both_kept_until_people_decide(ground):
    before = ground.look()
    ground.kill_watcher(ground.apply())
    temp = temp_beside(ground, ground.script)
    an_edit(temp)
    ground.script.write_bytes(b"#!/bin/bash\n# written later\n")

    for force in (False, True):
        with pytest.raises(NotBack, match="both written by somebody else; keep one of them"):
            ground.agent.restore(transaction="tx", force=force)

    assert ground.script.read_bytes() == b"#!/bin/bash\n# written later\n"
    assert temp.read_bytes().endswith(b"# by hand\n")
    temp.unlink()
    ground.agent.restore(transaction="tx", force=True)
    assert ground.look() == before


def test_a_half_written_file_never_takes_the_place_of_a_whole_one_when_an_object_is_lost(ground):
    ground.kill_watcher(ground.apply())
    temp = temp_beside(ground, ground.script)
    temp.write_bytes(ground.script.read_bytes()[:-1])
    ours = hashlib.sha256(ground.script.read_bytes()).hexdigest()
    ground.edges.state.object_path(ours).unlink()
    was = ground.script.stat()

    with pytest.raises(NotBack, match="No such file"):
        ground.agent.restore(transaction="tx")

    assert ground.script.stat().st_ino == was.st_ino
    temp.unlink()
    ground.agent.restore(transaction="tx")
