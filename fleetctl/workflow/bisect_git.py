"""A git tree on a host, read and never written: no checkout, no lock, no refreshed index.

Only plumbing is asked, with the repository's own hooks, monitors and filters switched off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleetctl.errors import InputError, RemoteFailed
from fleetctl.host.transport import Transport

_DEADLINE_S = 120.0
_SHOWN = 5
_QUIET = (
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "log.showSignature=0",
)
_ENVIRONMENT = ("env", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "LC_ALL=C")
REGULAR = ("100644", "100755")
_NOTHING = "000000"


@dataclass(frozen=True)
class Commit:
    """One commit of the list.

    Attributes:
        sha: 40 or 64 hex digits.
        parents: of it; two or more make a merge.
        subject: first line of its message.
    """

    sha: str
    parents: tuple[str, ...]
    subject: str

    @property
    def name(self) -> str:
        """How people know it: short id and subject."""
        return f"{self.sha[:10]} {self.subject}"

    @property
    def is_merge(self) -> bool:
        """Whether a branch came in with it."""
        return len(self.parents) > 1


@dataclass(frozen=True)
class FileDifference:
    """One path in which a commit differs from the one on the host.

    Attributes:
        path: relative to the git tree.
        modes: before and after; `000000` where there is no file.
        blobs: ids of the contents before and after.
    """

    path: str
    modes: tuple[str, str]
    blobs: tuple[str, str]

    @property
    def is_added(self) -> bool:
        """Whether the host's commit has no such file."""
        return self.modes[0] == _NOTHING

    @property
    def is_removed(self) -> bool:
        """Whether the other commit has no such file."""
        return self.modes[1] == _NOTHING

    @property
    def problem(self) -> str:
        """Why its contents alone don't bring the host to the other commit; empty if they do."""
        present = [mode for mode in self.modes if mode != _NOTHING]
        kinds = {"120000": "a symbolic link", "160000": "a submodule"}
        odd = [kinds.get(mode, f"of mode {mode}") for mode in present if mode not in REGULAR]
        if odd:
            return f"{self.path} is {odd[0]}"
        if len(set(present)) > 1:
            return f"the mode of {self.path} changes from {present[0]} to {present[1]}"
        if self.is_added and self.modes[1] == "100755":
            return f"{self.path} is a new executable"
        return ""


@dataclass(frozen=True)
class GitTree:
    """A git tree on one host.

    Attributes:
        directory: absolute path of its top on the host.
    """

    transport: Transport
    directory: str

    def check_clean(self) -> str:
        """Return the commit on the host, whose files are all as it says.

        Raises:
            InputError: git or the tree is missing, or a tracked file was changed.
        """
        top = self._text("rev-parse", "--show-toplevel").rstrip("\n")
        inside = self._text("rev-parse", "--show-prefix").rstrip("\n")
        if inside:
            raise InputError(
                f"{self._where} is only a part of the git tree {top}",
                why="a commit may change files anywhere in it",
                next_step="name the top of the tree: `tree` in the inventory, `path` in [commits]",
            )
        told = self._ask("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
        changed = [entry[3:].decode("utf-8", "replace") for entry in told.split(b"\0") if entry]
        if changed:
            more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
            raise InputError(
                f"{self._where} has changes that no commit holds",
                why=", ".join(changed[:_SHOWN]) + more,
                next_step="commit or remove them on the host: each build starts from its commit",
            )
        return self.resolve("HEAD")

    def resolve(self, name: str) -> str:
        """Return the id of a commit.

        Raises:
            InputError: the host's repository has no such commit.
        """
        code, out, _ = self._run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if code != 0:
            shallow = self._text("rev-parse", "--is-shallow-repository").strip() == "true"
            raise InputError(
                f"{self._where} has no commit {name}",
                why="the repository is shallow" if shallow else "git can't resolve the name",
                next_step="`git fetch` it on the host" + (" with --unshallow" if shallow else ""),
            )
        return out.decode().strip()

    def line(self, good: str, bad: str) -> tuple[Commit, ...]:
        """Return the commits after `good` up to `bad`, first parents only, oldest first.

        Raises:
            InputError: `good` does not lie on the first-parent line of `bad`.
        """
        told = self._ask(
            "rev-list", "--first-parent", "--reverse",
            "--format=%H%x00%P%x00%s", f"{good}..{bad}",
        )  # fmt: skip
        # git puts a line `commit ID` above each of ours; only newer ones can be told not to
        lines = [line for line in told.decode("utf-8", "replace").split("\n") if "\0" in line]
        commits = tuple(_commit(line) for line in lines)
        if not commits:
            code, _, _ = self._run("merge-base", "--is-ancestor", bad, good)
            same = good == bad
            raise InputError(
                "there is no commit between good and bad",
                why="they are the same commit"
                if same
                else "bad is older than good"
                if code == 0
                else "nothing leads from good to bad",
                next_step="swap them, or name other ends",
            )
        if not commits[0].parents or commits[0].parents[0] != good:
            raise InputError(
                f"good ({good[:10]}) does not lie on the first-parent line of bad ({bad[:10]})",
                why=f"that line starts after {(commits[0].parents or ('nothing',))[0][:10]}",
                next_step="name a commit of the line (`git log --first-parent`) as good",
            )
        return commits

    def differences(self, found: str, wanted: str) -> tuple[FileDifference, ...]:
        """Return the paths in which two commits differ; a rename is a removal and an addition."""
        told = self._ask(
            "diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", found, wanted
        )
        parts = told.split(b"\0")
        return tuple(
            _difference(head.decode("ascii"), path.decode("utf-8", "surrogateescape"))
            for head, path in zip(parts[::2], parts[1::2], strict=False)
            if head
        )

    def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Return contents by id, in one round trip."""
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return {}
        told = self._ask("cat-file", "--batch", stdin="".join(f"{i}\n" for i in wanted).encode())
        found, at = {}, 0
        for name in wanted:
            end = told.index(b"\n", at)
            head = told[at:end].decode().split()
            if len(head) != 3 or head[1] != "blob":
                raise InputError(
                    f"{self._where} lacks the content {name[:10]}",
                    why=" ".join(head),
                    next_step="`git fetch` it on the host: a partial clone lacks contents",
                )
            found[name] = told[end + 1 : end + 1 + int(head[2])]
            at = end + 2 + int(head[2])
        return found

    @property
    def _where(self) -> str:
        return f"{self.transport.host_name}:{self.directory}"

    def _text(self, *words: str) -> str:
        return self._ask(*words).decode("utf-8", "surrogateescape")

    def _ask(self, *words: str, stdin: bytes = b"") -> bytes:
        code, out, said = self._run(*words, stdin=stdin)
        if code == 0:
            return out
        if code == 127:
            raise InputError(
                f"{self.transport.host_name} has no git",
                why=said,
                next_step="install it there, or list the changes as [[change]] tables",
            )
        if words[0] == "rev-parse":
            raise InputError(
                f"{self._where} is no git tree that can be read",
                why=said,
                next_step="mend `tree` in the inventory or `path` in [commits], as git says",
            )
        raise RemoteFailed(
            f"git {words[0]} failed on {self._where}", why=said, next_step="see above"
        )

    def _run(self, *words: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
        argv: Sequence[str] = (*_ENVIRONMENT, "git", "-C", self.directory, *_QUIET, *words)
        done = self.transport.run(argv, stdin=stdin, deadline_s=_DEADLINE_S)
        return done.exit_code, done.stdout, done.stderr.decode("utf-8", "replace").strip()


def _commit(line: str) -> Commit:
    sha, parents, subject = line.split("\0", 2)
    return Commit(sha, tuple(parents.split()), subject)


def _difference(head: str, path: str) -> FileDifference:
    before, after, old, new, _ = head.lstrip(":").split(" ")
    return FileDifference(path, (before, after), (old, new))
