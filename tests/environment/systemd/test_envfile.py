"""Environment files: read as systemd reads them, written so that systemd and bash read the same."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.environment.systemd.envfile import (
    edit_env_file,
    file_values,
    is_env_file,
)
from fleetctl.errors import EditRefused

NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
PIECES = [
    "A",
    "B",
    "=",
    "1",
    " ",
    "\t",
    "\n",
    "\r",
    "'",
    '"',
    "\\",
    "#",
    ";",
    "$",
    "`",
    "é",
    "A=",
    "\nB=",
]
CONTENT = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
VALUES = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"]) | st.sampled_from("\n\t\"'\\$` #"), max_size=24
)


@settings(max_examples=300, deadline=None)
@given(content=CONTENT)
def test_a_file_is_read_as_systemd_reads_it(content, systemd, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.env"
    path.write_bytes(content.encode())
    theirs = {k.decode(): v.decode() for k, v in systemd.load(path) if NAME.fullmatch(k)}
    assert file_values(content.encode()) == theirs


@settings(max_examples=150, deadline=None)
@given(value=VALUES)
def test_a_written_value_is_read_alike_by_systemd_and_bash(value, systemd, tmp_path_factory):
    content = edit_env_file(b"# note\nB=2\nA=old # gone", {"A": value})
    path = tmp_path_factory.getbasetemp() / "written.env"
    path.write_bytes(content)
    theirs = dict(systemd.load(path))
    bash = ["bash", "-c", f"set -a; . {path}; cat /proc/self/environ"]
    run = subprocess.run(bash, env={"PATH": "/usr/bin:/bin"}, check=True, capture_output=True)
    in_bash = dict(item.split(b"=", 1) for item in run.stdout.split(b"\0") if item)
    assert theirs == {b"B": b"2", b"A": value.encode()}
    assert (in_bash[b"A"], in_bash[b"B"]) == (value.encode(), b"2")
    assert edit_env_file(content, {"A": value}) == content


@settings(max_examples=200, deadline=None)
@given(CONTENT, VALUES)
def test_an_edit_leaves_the_other_names_alone(content, value):
    after = attempt(content.encode(), value)
    if after is not None:
        assert file_values(after) == {**file_values(content.encode()), "C": value}


def attempt(content: bytes, value: str) -> bytes | None:
    try:
        return edit_env_file(content, {"C": value})
    except EditRefused:
        return None


@pytest.mark.parametrize(
    ("before", "edits", "after"),
    [
        (b"A=1\nB=2\n", {"A": "0"}, b"A=0\nB=2\n"),
        (b"A=1\nA=2", {"A": "0"}, b"A=1\nA=0"),
        (b"A=0 # off\n", {"A": "0"}, b"A=0\n"),
        (b"B=2", {"A": "0"}, b"B=2\nA=0\n"),
        (b"B=2\r\nA=1", {"A": "0"}, b"B=2\r\nA=0"),
        (b"A=1\n# A=3\nA=2\nB=1\n", {"A": None}, b"# A=3\nB=1\n"),
        (b"A='x y'\n", {"A": "x y"}, b"A='x y'\n"),
        (b"A=1\n", {"A": "it's $5"}, b'A="it\'s \\$5"\n'),
        (b'A="one\ntwo"\nB=1\n', {"A": "3"}, b"A=3\nB=1\n"),
    ],
)
def test_the_bytes_that_are_written(before, edits, after):
    assert edit_env_file(before, edits) == after


def test_a_name_that_no_environment_holds_is_refused():
    with pytest.raises(EditRefused) as caught:
        edit_env_file(b"", {"A.B": "1"})
    assert caught.value.code == "invalid-name"


@pytest.mark.parametrize(
    ("content", "yes"),
    [
        (b"A=1\n# c\n\n; d\nB='x\ny'\n", True),
        (b"export A=1\n", False),
        (b"A=1\necho x\n", False),
        (b"#!/bin/bash\nA=1\n", False),
        (b"# nothing\n", False),
    ],
)
def test_an_env_file_is_told_from_a_script(content, yes):
    assert is_env_file(content) is yes
