"""A directory lent to the service: it fills it, the undo removes it, the next arm may go on."""

from __future__ import annotations

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


def test_a_link_in_its_place_is_not_followed(ground, cache):
    ground.apply((LendDirectory(str(cache)),))
    cache.symlink_to(ground.module.parent)

    with pytest.raises(FleetError):
        ground.agent.restore(transaction="tx")

    assert ground.module.exists()
    cache.unlink()
    ground.agent.restore(transaction="tx")


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
