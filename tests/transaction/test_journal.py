"""The fold over a journal: whatever happened, what remains to be undone brings the host back."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.transaction.image import (
    ABSENT,
    DirectoryBefore,
    FileBefore,
    FileImage,
    NothingBefore,
    UnitBefore,
)
from fleetctl.transaction.journal import (
    Applied,
    Begun,
    Change,
    Committed,
    Conflicted,
    Done,
    Opened,
    Reverted,
    Reverting,
    State,
    opened,
    pending_undo,
    state,
)
from fleetctl.transaction.lease import Lease
from fleetctl.transaction.step import (
    MakeDirectory,
    ReloadUnits,
    RemoveDirectory,
    RemoveFile,
    RestartUnit,
    RestoreFile,
    RestoreUnit,
    WriteFile,
)

LEASE = Lease("l", "r", "me@here", "p", "x.service", 0, 60)


def sha(word: str) -> str:
    return (word.encode().hex() * 64)[:64]


def file_before(path: str, content: str | None) -> FileBefore:
    image = ABSENT if content is None else FileImage(sha(content), 1, 0o644, 0, 0, 0)
    return FileBefore(path, path, image, ".fleetctl-t", 1)


def start(*changes: Change) -> Opened:
    return Opened("t", 1, 0.0, LEASE, changes, (), 1000)


@dataclass
class Model:
    """A host in a few words: what files hold, and on which files the unit runs."""

    files: dict[str, str] = field(default_factory=dict)
    directories: set[str] = field(default_factory=set)
    runs_on: dict[str, str] = field(default_factory=dict)
    invocation: str = "i0"

    def perform(self, step, number):
        if isinstance(step, WriteFile):
            self.files[step.path] = step.content_sha256
        elif isinstance(step, RemoveFile):
            self.files.pop(step.path, None)
        elif isinstance(step, MakeDirectory):
            self.directories.add(step.path)
        elif isinstance(step, RestartUnit):
            self.restart(f"i{number + 1}")

    def undo(self, undo):
        if isinstance(undo, RestoreFile):
            image = undo.before.image
            if image == ABSENT:
                self.files.pop(undo.before.path, None)
            else:
                self.files[undo.before.path] = image.sha256
        elif isinstance(undo, RemoveDirectory):
            assert not [path for path in self.files if path.startswith(f"{undo.path}/")]
            self.directories.discard(undo.path)
        elif isinstance(undo, RestoreUnit) and self.invocation != undo.before.invocation:
            self.restart("restored")

    def restart(self, invocation):
        self.runs_on, self.invocation = dict(self.files), invocation


STEPS = st.lists(
    st.sampled_from(["write a", "write b", "remove c", "make d", "write d/e", "reload", "restart"]),
    unique=True,
    min_size=1,
)


def plan(words: list[str], host: Model) -> tuple[Change, ...]:
    ordered = sorted(words, key=lambda word: word == "write d/e" and "make d" in words)
    return tuple(change(word, host) for word in ordered)


def change(word: str, host: Model) -> Change:
    verb, _, name = word.partition(" ")
    path = f"/{name}"
    found = host.files.get(path)
    image = ABSENT if found is None else FileImage(found, 1, 0o644, 0, 0, 0)
    before = FileBefore(path, path, image, ".fleetctl-t", 1)
    if verb == "write":
        return Change(WriteFile(path, sha("new" + name), None, found or ABSENT), before)
    if verb == "remove":
        return Change(RemoveFile(path, found or sha("c")), before)
    if verb == "make":
        return Change(MakeDirectory(path), DirectoryBefore(path, existed=False))
    if verb == "reload":
        return Change(ReloadUnits(), NothingBefore())
    unit = UnitBefore(active=True, state="active/running", enabled="enabled", invocation="i0")
    return Change(RestartUnit("x.service"), unit)


@given(words=STEPS, crash_at=st.integers(0, 14), data=st.data())
def test_a_crash_at_any_point_also_during_undo_leaves_a_journal_that_restores(
    words, crash_at, data
):
    host = Model(files={"/a": sha("a"), "/c": sha("c")})
    host.runs_on = dict(host.files)
    before = (dict(host.files), set(host.directories), dict(host.runs_on))
    changes = plan(words, host)
    entries = [start(*changes)]
    for index, each in enumerate(changes):
        entries.append(Begun(index))
        if crash_at == 2 * index:
            break  # begun, not performed
        host.perform(each.step, index)
        if crash_at == 2 * index + 1:
            break  # performed, not done
        entries.append(Done(index))

    torn = data.draw(st.booleans()) and isinstance(entries[-1], Begun)
    seen = entries[:-1] if torn else entries
    undos = pending_undo(seen, torn=torn)
    for undo in undos[: data.draw(st.integers(0, len(undos)))]:
        host.undo(undo)  # this undo dies half-way; the next starts anew
    for undo in pending_undo([*seen, Reverting(0, "")], torn=torn):
        host.undo(undo)

    assert (host.files, host.directories, host.runs_on) == before


def test_files_go_back_newest_first_then_one_reload_then_each_unit_once():
    unit = UnitBefore(True, "active/running", "enabled", "i")
    entries = [
        start(
            Change(RestartUnit("x.service"), unit),
            Change(WriteFile("/a", sha("n"), None, ABSENT), file_before("/a", None)),
            Change(ReloadUnits(), NothingBefore()),
            Change(WriteFile("/b", sha("n"), None, ABSENT), file_before("/b", None)),
            Change(ReloadUnits(), NothingBefore()),
            Change(RestartUnit("x.service"), unit),
            Change(RestartUnit("y.service"), unit),
        ),
        *(Begun(index) for index in range(7)),
    ]

    undos = pending_undo(entries)

    assert [u.before.path for u in undos if isinstance(u, RestoreFile)] == ["/b", "/a"]
    assert [type(u) for u in undos[2:]] == [ReloadUnits, RestoreUnit, RestoreUnit]
    assert [u.step.unit for u in undos[3:]] == ["x.service", "y.service"]


def test_a_service_that_restarts_by_itself_before_its_step_is_looked_at_too():
    unit = Change(RestartUnit("x.service"), UnitBefore(True, "a/r", "enabled", "i"))
    write = Change(WriteFile("/a", sha("n"), None, ABSENT), file_before("/a", None))

    undos = pending_undo([start(write, unit), Begun(0)])

    assert [type(u) for u in undos] == [RestoreFile, RestoreUnit]


def test_nothing_begun_means_nothing_to_undo():
    unit = Change(RestartUnit("x.service"), UnitBefore(True, "a/r", "enabled", "i"))

    assert pending_undo([start(unit)]) == []


def test_after_a_completed_undo_nothing_is_left():
    write = Change(WriteFile("/a", sha("n"), None, ABSENT), file_before("/a", None))

    assert pending_undo([start(write), Begun(0), Reverting(0, ""), Reverted(0)]) == []


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([], State.APPLYING),
        ([Begun(0), Done(0)], State.APPLYING),
        ([Begun(0), Done(0), Applied(0)], State.APPLIED),
        ([Applied(0), Committed(0)], State.COMMITTED),
        ([Applied(0), Committed(0), Reverting(0, "")], State.REVERTING),
        ([Applied(0), Reverting(0, ""), Conflicted(0, ("/a",))], State.CONFLICT),
        ([Applied(0), Reverting(0, ""), Reverted(0)], State.REVERTED),
    ],
)
def test_the_state_is_a_fold(after, expected):
    assert state([start(), *after]) is expected


def test_a_journal_that_does_not_begin_as_one_is_refused():
    with pytest.raises(ValueError, match="Opened"):
        opened([Begun(0)])
