"""Diffs fit the host's bytes exactly or are refused with the conflict shown."""

import difflib
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import DriftError, InputError
from fleetctl.plan.patching import apply_diff, paths_of


def diff_of(before: bytes, after: bytes, tmp_path) -> bytes:
    (tmp_path / "a").mkdir(exist_ok=True)
    (tmp_path / "b").mkdir(exist_ok=True)
    (tmp_path / "a/f.py").write_bytes(before)
    (tmp_path / "b/f.py").write_bytes(after)
    made = subprocess.run(  # noqa: PLW1510 - diff exits with 1 when files differ
        ["diff", "-u", "--text", "a/f.py", "b/f.py"], cwd=tmp_path, capture_output=True
    )
    return made.stdout


LINE = st.sampled_from(
    [b"a\n", b"b\n", b"c\r\n", b"\n", b"x\x0cy\n", b"\xff\xfe\n", b"--- a\n", b"+++ b\n", b"-- q\n"]
)
FILE = st.builds(
    lambda lines, tail: b"".join(lines) + tail,
    st.lists(LINE, max_size=12),
    st.sampled_from([b"", b"end without newline", b"\r"]),
)


@given(before=FILE, after=FILE)
def test_a_diff_made_by_diff_u_brings_exactly_the_new_bytes(tmp_path_factory, before, after):
    diff = diff_of(before, after, tmp_path_factory.mktemp("d"))
    if not diff:
        return

    (change,) = apply_diff(diff, lambda _: before)

    assert change.content == after


def test_a_hunk_that_moved_is_refused_and_shown_as_git_does(tmp_path):
    before = b"".join(b"line %d\n" % n for n in range(20))
    diff = diff_of(before, before.replace(b"line 9\n", b"line nine\n"), tmp_path)

    with pytest.raises(DriftError) as caught:
        apply_diff(diff, lambda _: b"new first line\n" + before)
    assert "<<<<<<< the host's file" in caught.value.why
    assert "f.py" in caught.value.what


def test_creating_and_removing_files():
    create = b"--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,2 @@\n+x = 1\n+y = 2\n"
    remove = b"--- a/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x = 1\n"

    assert apply_diff(create, lambda _: None)[0].content == b"x = 1\ny = 2\n"
    assert apply_diff(remove, lambda _: b"x = 1\n")[0].content is None
    with pytest.raises(DriftError, match="exists already"):
        apply_diff(create, lambda _: b"")
    with pytest.raises(DriftError, match="does not exist"):
        apply_diff(remove, lambda _: None)


@pytest.mark.parametrize("text", [b"", b"hello\n", b"--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n a\n"])
def test_what_is_no_unified_diff_is_refused(text):
    with pytest.raises(InputError):
        apply_diff(text, lambda _: b"a\n")


def test_a_diff_that_leaves_its_target_is_refused():
    text = "".join(difflib.unified_diff(["a\n"], ["b\n"], "a/../../etc/x", "b/../../etc/x"))

    with pytest.raises(InputError, match="leaves its target"):
        paths_of(text.encode())
