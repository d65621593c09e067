"""A directory lent to the service: it fills it, the undo removes it, the next arm may go on."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from fleetctl.agent.by_hand import by_hand
from fleetctl.errors import FleetError
from fleetctl.transaction.image import DirectoryBefore
from fleetctl.transaction.journal import Change
from fleetctl.transaction.step import BadStep, LendDirectory


def fill(directory) -> None:
    """Put into a lent directory what a compiler would."""
    (directory / "ab" / "cd").mkdir(parents=True, exist_ok=True)
    (directory / "ab" / "cd" / "kernel.so").write_bytes(b"\x7fELF")
    (directory / "ab" / "cd").chmod(0o500)
    (directory / "outside").symlink_to(directory.parent)


@pytest.fixture
def cache(ground):
    return ground.tree / "fleetctl-arm-triton"


def test_what_the_service_put_into_it_goes_with_the_undo(ground, cache):
    before = ground.look()
    ground.apply((LendDirectory(str(cache)),))
    assert not cache.exists()
    fill(cache)

    ground.agent.restore(transaction="tx")

    assert ground.look() == before


def test_one_that_the_service_never_made_is_no_problem(ground, cache):
    before = ground.look()
    ground.apply((LendDirectory(str(cache)),))

    ground.agent.restore(transaction="tx")

    assert ground.look() == before


@pytest.mark.parametrize("there", ["file", "directory", "link"])
def test_what_is_there_already_is_never_lent(ground, cache, there):
    if there == "file":
        cache.write_bytes(b"")
    elif there == "directory":
        fill(cache)
    else:
        cache.symlink_to(ground.tree)
    before = ground.look()

    with pytest.raises(FleetError, match="cannot change"):
        ground.apply((LendDirectory(str(cache)),))

    assert ground.look() == before


def stand_in(kind: str, place: Path, target: Path) -> None:
    """Put something else where the service was to make its directory."""
    if kind == "file":
        place.write_bytes(b"x")
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(place))
    else:
        ends = {"link to a directory": target.parent, "link to a file": target}
        place.symlink_to(ends.get(kind, place.parent / "nowhere"))


@pytest.mark.parametrize(
    "kind",
    ["link to a directory", "link to a file", "link to nothing", "file", "fifo", "socket"],
)
def test_what_stands_in_its_place_goes_and_what_a_link_led_to_stays(ground, cache, kind):
    before = ground.look()
    ground.apply((LendDirectory(str(cache)),))
    stand_in(kind, cache, ground.module)

    ground.agent.restore(transaction="tx")

    assert ground.look() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
@pytest.mark.parametrize("below", ["", "deep er"])
def test_what_is_mounted_there_is_reported_and_kept_with_all_in_it(ground, cache, below):
    ground.apply((LendDirectory(str(cache)),))
    point = cache / below
    point.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", str(point)], check=False)
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        (point / "theirs").write_bytes(b"x")
        with pytest.raises(FleetError, match="mounted"):
            ground.agent.restore(transaction="tx")
        assert (point / "theirs").exists()
    finally:
        subprocess.run(["umount", str(point)], check=True)
    ground.agent.restore(transaction="tx")
    assert not cache.exists()


def test_the_next_arm_goes_on_with_what_it_lends_too_and_the_rest_goes(ground, cache):
    before = ground.look()
    other = ground.tree / "fleetctl-arm-inductor"
    lease = ground.lease()
    ground.agent.apply(lease, "first", (LendDirectory(str(cache)), LendDirectory(str(other))), {})
    fill(cache)
    fill(other)

    ground.agent.apply(lease, "second", (LendDirectory(str(cache)),), {}, replaces="first")

    assert (cache / "ab" / "cd" / "kernel.so").exists()
    assert not other.exists()
    ground.agent.release(lease.id)
    assert ground.look() == before


def test_the_script_for_people_removes_it_last(ground):
    change = Change(LendDirectory("/srv/x y"), DirectoryBefore("/srv/x y", existed=False))

    assert by_hand(ground.edges.state, "tx", (change,)).endswith("rm -rf '/srv/x y'\n")


def test_a_path_that_is_not_absolute_is_never_lent():
    with pytest.raises(BadStep):
        LendDirectory("cache")
