"""Changes stacked on a host's bytes, and files written whole or removed."""

import difflib
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.errors import DriftError
from fleetctl.plan.patches import goals_of
from fleetctl.plan.patching import apply_diff
from fleetctl.spec.arms import PatchContent
from fleetctl.spec.experiment import Patch
from fleetctl.transaction.code import CodeReport
from fleetctl.workflow.bisect_series import Content, Stack, removal, same_on_all, whole_file

NOBODY = CodeReport("u.service", ())


class View:
    """A host as found, by path."""

    code = NOBODY

    def __init__(self, **files: bytes) -> None:
        self.files = {f"/tree/{name}": content for name, content in files.items()}

    def read(self, path: str) -> bytes | None:
        return self.files.get(path)


def stack(**files: bytes) -> Stack:
    host = SimpleNamespace(name="a", host=SimpleNamespace(tree="/tree"))
    return Stack(host, View(**files))


def diff(name: str, before: str, after: str, change: str = "d") -> Content:
    lines = difflib.unified_diff(
        before.splitlines(True), after.splitlines(True), f"a/{name}", f"b/{name}"
    )
    patch = Patch(source=f"{change}.diff", path=".")
    return Content(change, (PatchContent(patch, {"": "".join(lines).encode()}),))


def whole(name: str, content: bytes, change: str = "w") -> Content:
    patch = Patch(source=f"{change}.py", path=name, marker=f"[variant] {change}")
    return Content(change, (PatchContent(patch, {"": content}),))


def written(arm) -> dict[str, bytes]:
    return {content.patch.path: content.files[""] for content in arm.patches}


def test_each_diff_is_applied_onto_what_those_before_it_leave():
    series = [diff("m", "1\n", "1\n2\n", "first"), diff("m", "1\n2\n", "1\n2\n3\n", "second")]

    arms = [stack(m=b"1\n").arm(str(k), series[:k]) for k in range(3)]

    assert [written(arm) for arm in arms] == [{}, {"m": b"1\n2\n"}, {"m": b"1\n2\n3\n"}]


def test_a_diff_without_the_one_it_rests_on_is_a_drift_that_names_the_change():
    second = diff("m", "1\n2\n", "1\n2\n3\n", "second")

    with pytest.raises(DriftError, match="change second"):
        stack(m=b"1\n").arm("second alone", [second])


def test_of_two_whole_files_the_last_wins_and_only_its_marker_is_asked_for():
    arm = stack(m=b"old").arm("both", [whole("m", b"one", "one"), whole("m", b"two", "two")])

    (content,) = arm.patches
    assert content.files == {"": b"two"}
    assert content.patch.marker == "[variant] two"


def test_a_change_that_is_undone_by_a_later_one_leaves_the_file_as_found():
    series = [diff("m", "1\n", "2\n"), diff("m", "2\n", "1\n")]

    assert stack(m=b"1\n").arm("there and back", series).patches == ()


def test_flags_of_later_changes_win():
    series = [Content("a", (), {"X": "1", "Y": "1"}), Content("b", (), {"X": None})]

    assert stack().arm("ab", series).flags == {"X": None, "Y": "1"}


def test_a_file_whose_name_ends_as_a_diff_is_still_written_whole():
    content = whole_file("notes.diff", b"text", "change")

    assert content.patch.kind == "file"


@settings(deadline=None, max_examples=50)
@given(st.binary(min_size=1, max_size=60))
def test_any_file_can_be_removed_and_only_if_it_is_the_one_that_was_found(found):
    content = removal("d/m.py", found, "change")

    (change,) = apply_diff(content.files[""], lambda _: found)
    assert (change.path, change.content) == ("d/m.py", None)
    host = SimpleNamespace(tree="/tree")
    (goal,) = goals_of("a", host, content, NOBODY, lambda _: found)
    assert (goal.path, goal.content) == ("/tree/d/m.py", None)
    with pytest.raises(DriftError, match="another version"):
        goals_of("a", host, content, NOBODY, lambda _: found + b"more")


@pytest.mark.parametrize(
    ("place", "found"), [("m", b""), ("a\tb", b"x"), ('a"b', b"x"), ("é", b"x")]
)
def test_a_removal_that_can_not_be_spelled_is_refused(place, found):
    with pytest.raises(DriftError, match="can't be done exactly"):
        removal(place, found, "change")


def test_hosts_that_would_get_different_files_are_refused():
    arms = [stack(m=base).arm("k", [diff("m", "1\n", "1\n2\n")]) for base in (b"1\n", b"1\n")]
    assert same_on_all(arms) == arms[0]
    other = stack(m=b"1\n").arm("k", [diff("m", "1\n", "1\n4\n")])

    with pytest.raises(DriftError, match="not be the same on all hosts"):
        same_on_all([arms[0], other])
