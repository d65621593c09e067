"""A git tree on a host, read through a real git and never written."""

import hashlib
import os
import subprocess

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import DriftError, InputError
from fleetctl.host.local import connect_local
from fleetctl.workflow.bisect_commits import CommitLine
from fleetctl.workflow.bisect_git import Commit, GitTree


class Repository:
    def __init__(self, folder):
        self.folder = folder
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "t")
        self.git("config", "user.email", "t@example.org")
        self.git("config", "commit.gpgsign", "false")

    def git(self, *words):
        done = subprocess.run(
            ["git", "-C", self.folder, *words],
            check=True, capture_output=True, text=True,
            env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
        )  # fmt: skip
        return done.stdout.strip()

    def commit(self, subject, **files):
        for name, content in files.items():
            path = self.folder / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def everything(self):
        return {
            str(path.relative_to(self.folder)): (
                hashlib.sha256(path.read_bytes()).hexdigest(),
                path.stat().st_mtime_ns,
            )
            for path in self.folder.rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def transport():
    opened = connect_local("here", clock=SystemClock())
    yield opened
    opened.close()


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


@pytest.fixture
def tree(repository, transport):
    return GitTree(transport, str(repository.folder))


def line_of(tree, *commits):
    listed = tuple(Commit(sha, (), "c") for sha in commits)
    return CommitLine(tree, "", tree.check_clean(), listed, None)


def test_the_list_is_the_first_parent_line_from_good_to_bad_and_a_merge_is_one_step(
    repository, tree
):
    good = repository.commit("one", a=b"1")
    repository.git("checkout", "-q", "-b", "side")
    repository.commit("on the side", s=b"s")
    repository.git("checkout", "-q", "main")
    two = repository.commit("two", a=b"2")
    repository.git("merge", "-q", "--no-ff", "-m", "merge side", "side")
    three = repository.commit("three: with\ttab", a=b"3")

    line = tree.line(good, three)

    assert [commit.subject for commit in line] == ["two", "merge side", "three: with\ttab"]
    assert [commit.is_merge for commit in line] == [False, True, False]
    assert line[0].sha == two


def test_looking_at_a_tree_changes_neither_its_index_nor_anything_else(repository, tree):
    good = repository.commit("one", a=b"1")
    bad = repository.commit("two", a=b"2")
    # a file whose time differs from the index's is what makes git refresh it
    os.utime(repository.folder / "a", ns=(1, 1))
    before = repository.everything()

    found = tree.check_clean()
    line_of(tree, good, bad).build(0, "0")
    tree.line(good, bad)

    assert found == bad
    assert repository.everything() == before


def test_renames_removals_additions_and_binary_files_become_one_patch_set(repository, tree):
    old = repository.commit("old", gone=b"was here\n", moved=b"same\n", blob=bytes(range(256)))
    repository.commit("new", gone=None, moved=None, d__moved=b"same\n", blob=b"\0\xff", add=b"+")

    build = line_of(tree, old).build(0, "old")

    written = {c.patch.path: c.files[""] for c in build.arm.patches if c.patch.kind == "file"}
    removed = [c.patch.source for c in build.arm.patches if c.patch.kind == "diff"]
    assert written == {"gone": b"was here\n", "moved": b"same\n", "blob": bytes(range(256))}
    assert [source.split("remove ")[1] for source in sorted(removed)] == [
        "add.diff",
        "d/moved.diff",
    ]
    assert sorted(build.absent) == ["gone", "moved"]


def test_a_patch_names_the_file_that_it_was_made_for(repository, tree):
    old = repository.commit("old", a=b"1\n")
    repository.commit("new", a=b"2\n")

    (content,) = line_of(tree, old).build(0, "old").arm.patches

    assert content.patch.base_sha256 == hashlib.sha256(b"2\n").hexdigest()


def test_modes_links_and_submodules_are_not_deployed_but_named(repository, tree):
    repository.commit("plain", a=b"1", b=b"1")
    (repository.folder / "a").chmod(0o755)
    (repository.folder / "b").unlink()
    (repository.folder / "b").symlink_to("a")
    (repository.folder / "run").write_bytes(b"#!/bin/sh\n")
    (repository.folder / "run").chmod(0o755)
    odd = repository.commit("odd")
    repository.git("checkout", "-q", "HEAD^")

    problems = [d.problem for d in tree.differences(tree.check_clean(), odd)]

    assert problems == [
        "the mode of a changes from 100644 to 100755",
        "b is a symbolic link",
        "run is a new executable",
    ]
    with pytest.raises(DriftError, match="can't be deployed file by file"):
        line_of(tree, odd).build(0, "odd")


def test_a_dirty_tree_is_refused_with_the_files_that_are_not_committed(repository, tree):
    repository.commit("one", a=b"1")
    (repository.folder / "a").write_bytes(b"mine")
    (repository.folder / "untracked").write_bytes(b"harmless until a commit wants the place")

    with pytest.raises(InputError, match="changes that no commit holds") as refused:
        tree.check_clean()

    assert refused.value.why == "a"


@pytest.mark.parametrize(
    ("good", "bad", "says"),
    [
        ("{two}", "{one}", "bad is older than good"),
        ("{one}", "{one}", "the same commit"),
        ("{side}", "{two}", "does not lie on the first-parent line"),
    ],
)
def test_ends_that_bound_no_list_are_refused(repository, tree, good, bad, says):
    one = repository.commit("one", a=b"1")
    repository.git("checkout", "-q", "-b", "side")
    side = repository.commit("side", s=b"1")
    repository.git("checkout", "-q", "main")
    two = repository.commit("two", a=b"2")
    names = {"one": one, "two": two, "side": side}

    with pytest.raises(InputError) as refused:
        tree.line(tree.resolve(good.format(**names)), tree.resolve(bad.format(**names)))

    assert says in str(refused.value)


def test_a_missing_commit_a_missing_tree_and_a_part_of_a_tree_are_told_apart(
    repository, tree, transport, tmp_path_factory
):
    repository.commit("one", d__a=b"1")

    with pytest.raises(InputError, match="has no commit v99"):
        tree.resolve("v99")
    with pytest.raises(InputError, match="is no git tree"):
        GitTree(transport, str(tmp_path_factory.mktemp("bare"))).check_clean()
    with pytest.raises(InputError, match="only a part of the git tree"):
        GitTree(transport, str(repository.folder / "d")).check_clean()


def test_a_shallow_clone_says_how_to_get_the_missing_commits(
    repository, transport, tmp_path_factory
):
    repository.commit("one", a=b"1")
    repository.commit("two", a=b"2")
    clone = tmp_path_factory.mktemp("clone")
    repository.git("clone", "-q", "--depth", "1", f"file://{repository.folder}", str(clone))

    with pytest.raises(InputError) as refused:
        GitTree(transport, str(clone)).resolve("HEAD^")

    assert "--unshallow" in refused.value.next_step
