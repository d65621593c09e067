"""Files are judged by the host's own programs before anything is changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from fleetctl.transaction.outcome import StagedFile

PYENV = Path.home() / ".pyenv" / "versions"


def test_files_without_fault_have_no_findings(ground):
    files = [
        StagedFile("/t/a.py", b"A = 1\n"),
        StagedFile("/t/serve", b"#!/usr/bin/env bash\nexport A=1\n"),
        StagedFile("/t/notes.txt", b"(((("),
    ]

    assert ground.agent.check(files) == ()


def test_a_syntax_error_is_told_with_its_line_and_nothing_is_imported(ground, tmp_path):
    proof = tmp_path / "imported"
    content = f"open({str(proof)!r}, 'w')\n\ndef broken(:\n".encode()

    (finding,) = ground.agent.check([StagedFile("/t/a.py", content)])

    assert finding.fatal
    assert finding.line == 3
    assert finding.message.startswith("/t/a.py:3: ")
    assert not proof.exists()


@pytest.mark.parametrize("content", [b"\x00", b"\xff\xfe = 1", b"# coding: nonsense\n"])
def test_bytes_that_are_no_python_are_a_finding_not_a_crash(ground, content):
    findings = ground.agent.check([StagedFile("/t/a.py", content), StagedFile("/t/b.py", b"B = 1")])

    assert [finding.path for finding in findings] == ["/t/a.py"]
    assert findings[0].fatal


def test_the_services_own_interpreter_decides(ground):
    old = PYENV / "3.8.18" / "bin" / "python3"
    if not old.exists():
        pytest.skip("no Python 3.8 here")
    modern = StagedFile("/t/a.py", b"match 1:\n    case 1:\n        pass\n")

    (finding,) = ground.agent.check([modern], interpreter=str(old))

    assert finding.checked_by == str(old)
    assert finding.fatal


def test_an_interpreter_that_is_not_there_is_told(ground):
    (finding,) = ground.agent.check([StagedFile("/t/a.py", b"A = 1")], interpreter="/no/python")

    assert finding.fatal
    assert "/no/python is not there" in finding.message


def test_shell_scripts_are_read_by_bash_whatever_their_name(ground):
    broken = b"#!/bin/bash\necho ok\nif true; then\n"

    by_name, by_first_line = ground.agent.check(
        [StagedFile("/t/a.sh", b"echo ok\nif true; then\n"), StagedFile("/t/serve", broken)]
    )

    assert by_name.fatal
    assert by_first_line.path == "/t/serve"
    assert by_first_line.line == 4
    assert by_first_line.message.startswith("/t/serve: line 4: ")


def test_a_unit_file_is_read_by_systemd_under_its_own_name(ground):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze here")
    unit = b"[Service]\nExecStart=/bin/true\nRestrat=always\n"

    findings = ground.agent.check([StagedFile("/etc/systemd/system/x.service", unit)])

    assert any("Restrat" in finding.message for finding in findings)
    assert all("staging" not in finding.message for finding in findings)
    assert list((ground.state / "staging").iterdir()) == []


@pytest.mark.parametrize(
    ("deed", "says"),
    [
        (lambda path: path.with_name("other").hardlink_to(path), "2 hard links"),
        (lambda path: (path.unlink(), os.mkfifo(path)), "not a regular file"),
        (lambda path: (path.unlink(), path.symlink_to(path)), "links"),
    ],
    ids=["hard link", "fifo", "loop of links"],
)
def test_what_could_not_be_changed_is_known_before_the_first_change(ground, deed, says):
    deed(ground.script)

    (finding,) = ground.agent.check([StagedFile(str(ground.script), b"#!/bin/sh\n")])

    assert finding.fatal
    assert says in finding.message


def test_a_new_file_in_a_directory_that_is_going_to_be_made_is_no_fault(ground):
    assert ground.agent.check([StagedFile(str(ground.tree / "new/deep.txt"), b"x")]) == ()
