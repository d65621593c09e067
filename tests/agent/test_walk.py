"""A path leads where its components say, and never where somebody else would like it to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetctl.agent.walk import PathRefused, is_within, resolved

NOBODY = 65534


def real_path(path: Path, *, follow: bool = True) -> str:
    with resolved(str(path), follow=follow) as place:
        return place.path


def test_plain_paths_lead_to_themselves(tmp_path):
    (tmp_path / "a").mkdir()

    assert real_path(tmp_path / "a" / "file") == str(tmp_path / "a" / "file")


@pytest.mark.parametrize(
    ("link", "target"),
    [("l", "a/file"), ("l", "./a/../a//file"), ("a/l", "../a/file"), ("d", "a"), ("x/y", "../a")],
)
def test_our_own_links_are_followed_to_the_end(tmp_path, link, target):
    for folder in ("a", "x"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a" / "file").write_bytes(b"")
    (tmp_path / link).symlink_to(target)
    path = tmp_path / link if target.endswith("file") else tmp_path / link / "file"

    assert real_path(path) == str(tmp_path / "a" / "file")
    assert real_path(path) == os.path.realpath(path)


def test_absolute_links_and_links_above_the_root_are_followed_too(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "absolute").symlink_to(tmp_path / "file")
    (tmp_path / "above").symlink_to("../" * 40 + str(tmp_path / "file")[1:])

    assert real_path(tmp_path / "absolute") == str(tmp_path / "file")
    assert real_path(tmp_path / "above") == str(tmp_path / "file")


def test_loops_end(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(PathRefused, match="too many"):
        real_path(tmp_path / "a")


def test_a_link_on_the_way_is_refused_when_links_are_not_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    with pytest.raises(PathRefused, match="symlink"):
        real_path(tmp_path / "link" / "file", follow=False)
    assert real_path(tmp_path / "link", follow=False) == str(tmp_path / "link")


@pytest.mark.parametrize("end", ["..", "."])
def test_a_path_that_ends_in_dots_is_a_directory(tmp_path, end):
    (tmp_path / "link").symlink_to(end)

    with pytest.raises(PathRefused, match="directory"):
        real_path(tmp_path / "link")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make others' links")


@needs_root
def test_another_users_link_to_what_is_not_theirs_is_refused(tmp_path):
    target = tmp_path / "precious"
    target.write_bytes(b"root's")
    link = tmp_path / "trap"
    link.symlink_to(target)
    os.lchown(link, NOBODY, NOBODY)

    with pytest.raises(PathRefused, match="another user's symlink"):
        real_path(link)


@needs_root
def test_another_users_link_within_what_is_theirs_is_followed(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "v1").mkdir()
    (home / "v1" / "file").write_bytes(b"")
    (home / "current").symlink_to("v1")
    for path in (home, home / "v1", home / "v1" / "file", home / "current"):
        os.lchown(path, NOBODY, NOBODY)

    assert real_path(home / "current" / "file") == str(home / "v1" / "file")


def test_a_directory_swapped_for_a_link_after_the_walk_changes_nothing(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "elsewhere").mkdir()
    with resolved(str(tmp_path / "real" / "file")) as place:
        (tmp_path / "real").rename(tmp_path / "moved")
        (tmp_path / "real").symlink_to("elsewhere")
        os.close(os.open(place.name, os.O_CREAT, dir_fd=place.directory_fd))

    assert (tmp_path / "moved" / "file").exists()
    assert not (tmp_path / "elsewhere" / "file").exists()


def test_no_descriptor_stays_open(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(5):
        real_path(tmp_path / "file")
        with pytest.raises(FileNotFoundError):
            real_path(tmp_path / "no" / "file")

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_within_means_below_and_not_beside():
    assert is_within("/srv/tree/a", ("/srv/tree",))
    assert not is_within("/srv/tree2/a", ("/srv/tree",))
    assert not is_within("/srv/tree", ("/srv/tree",))
