"""Commits of a git tree on the host as builds: the files that differ, as one patch set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from fleetctl.errors import DriftError, InputError
from fleetctl.plan.planner import sha256
from fleetctl.plan.targets import module_file
from fleetctl.spec.arms import Arm, PatchContent
from fleetctl.spec.bisect import LONGEST_SERIES, Commits
from fleetctl.transaction.code import CodeQuery
from fleetctl.workflow.bisect_git import Commit, FileDifference, GitTree
from fleetctl.workflow.bisect_ground import Build
from fleetctl.workflow.bisect_series import removal, same_on_all, whole_file
from fleetctl.workflow.edges import Reached


@dataclass(frozen=True)
class CommitLine:
    """The list of one host: point 0 is the good commit, point k the k-th after it.

    Attributes:
        prefix: path of the git tree below the host's `tree`; empty where they are the same.
        found: the commit on the host.
        commits: the good one first.
        package_root: directory of the proven package below the git tree, and its name.
    """

    tree: GitTree
    prefix: str
    found: str
    commits: tuple[Commit, ...]
    package_root: tuple[PurePosixPath, str] | None

    def build(self, point: int, name: str) -> Build:
        """Return the build of a point: every file in which it differs from what was found.

        Raises:
            DriftError: contents alone don't make that commit (modes, links, submodules).
        """
        commit = self.commits[point]
        differences = self.tree.differences(self.found, commit.sha)
        problems = [d.problem for d in differences if d.problem]
        if problems:
            more = f", and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise DriftError(
                f"commit {commit.name} can't be deployed file by file",
                why=f"{problems[0]}{more}",
                next_step="it is left out: fleetctl deploys contents, not modes and links",
            )
        ids = [
            i for d in differences for i, mode in zip(d.blobs, d.modes, strict=True) if int(mode)
        ]
        blobs = self.tree.blobs(ids)
        patches = tuple(self._patch(commit, difference, blobs) for difference in differences)
        absent = tuple(self._place(d) for d in differences if d.is_added)
        return Build(Arm(name, patches), absent)

    def _patch(
        self, commit: Commit, difference: FileDifference, blobs: dict[str, bytes]
    ) -> PatchContent:
        place, by = self._place(difference), commit.sha[:10]
        if difference.is_removed:
            return removal(place, blobs[difference.blobs[0]], by)
        found = None if difference.is_added else sha256(blobs[difference.blobs[0]])
        return whole_file(
            place,
            blobs[difference.blobs[1]],
            by,
            module=self._module(difference),
            base_sha256=found,
        )

    def _place(self, difference: FileDifference) -> str:
        return str(PurePosixPath(self.prefix) / difference.path)

    def _module(self, difference: FileDifference) -> str | None:
        """Return the module that a file is in the proven package; None for all others."""
        path = PurePosixPath(difference.path)
        if self.package_root is None or difference.is_added or path.suffix != ".py":
            return None
        root, package = self.package_root
        if root not in path.parents:
            return None
        parts = (*package.split("."), *path.relative_to(root).with_suffix("").parts)
        named = ".".join(parts).removesuffix(".__init__")
        return named if all(map(str.isidentifier, named.split("."))) else None


def commit_line(host: Reached, commits: Commits) -> CommitLine:
    """Return the list of a host, whose git tree is clean.

    Raises:
        InputError: the tree is dirty or missing, or a commit is.
    """
    prefix = PurePosixPath(commits.path)
    tree = GitTree(host.transport, str(PurePosixPath(host.host.tree) / prefix))
    found = tree.check_clean()
    good, bad = tree.resolve(commits.good), tree.resolve(commits.bad)
    line = tree.line(good, bad)
    if len(line) > LONGEST_SERIES:
        raise InputError(
            f"there are {len(line)} commits between good and bad",
            why=f"a search takes {LONGEST_SERIES} at most",
            next_step="name ends that are closer to each other",
        )
    first = Commit(good, (), commits.good)
    root = _package_root(host, tree, commits.package)
    return CommitLine(tree, "" if str(prefix) == "." else str(prefix), found, (first, *line), root)


def same_lines(lines: Sequence[CommitLine]) -> CommitLine:
    """Return the list that all hosts of a site have.

    Raises:
        InputError: their repositories differ.
    """
    if any((line.found, line.commits) != (lines[0].found, lines[0].commits) for line in lines):
        raise InputError(
            "the hosts of the site don't hold the same commits",
            why=", ".join(f"{line.tree.transport.host_name}: {line.found[:10]}" for line in lines),
            next_step="bring all of them to one commit first",
        )
    return lines[0]


def build_on_all(lines: Sequence[CommitLine], point: int, name: str) -> Build:
    """Return the build of a point, the same for all hosts of a site."""
    builds = [line.build(point, name) for line in lines]
    return Build(same_on_all([build.arm for build in builds]), builds[0].absent)


def _package_root(
    host: Reached, tree: GitTree, package: str | None
) -> tuple[PurePosixPath, str] | None:
    if package is None:
        return None
    query = CodeQuery(host.host.unit, (package,), host.host.python, host.host.tree)
    file = PurePosixPath(module_file(host.name, host.host, package, host.agent.code(query)))
    if file.name != "__init__.py" or PurePosixPath(tree.directory) not in file.parents:
        raise InputError(
            f"{package} is no package of the git tree on {host.name}",
            why=f"it is imported from {file}",
            next_step="name a package below the tree as `package` in [commits], or none",
        )
    return file.parent.relative_to(tree.directory), package
