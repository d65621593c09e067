"""Which kind a machine permits is found out by trying, and what is missing is said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from fleetctl.errors import LabError
from fleetctl.lab import Kind, commands, permission
from fleetctl.lab.permission import Permitted, check_machine, what_is_permitted

UP = """
import json, sys
from pathlib import Path
from fleetctl.lab import Lab
lab = Lab.at(Path(sys.argv[1]))
try:
    lab.up(tree_source=Path(sys.argv[2]))
    print(json.dumps(lab.status().as_document()))
finally:
    lab.down()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up privileges")


@needs_root
@pytest.mark.lab
@pytest.mark.timeout(300)
def test_without_the_privilege_to_mount_a_lab_falls_back_to_processes_and_says_why(
    labs, permitted_kinds
):
    directory = labs.new_directory()
    confined = ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-c", UP]
    done = subprocess.run(
        [*confined, str(directory), str(labs.standin)],
        env={**os.environ, "USER": "somebody", "LOGNAME": "somebody"},  # as `su` leaves it
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["kind"] == "processes"
    assert "not permitted" in document["why_this_kind"]
    assert any("partition" in thing for thing in document["cannot_show"])
    assert [host["state"] for host in document["hosts"]] == ["up"]


def test_the_kind_follows_from_what_is_permitted():
    assert Permitted("").kind is Kind.NAMESPACES
    assert Permitted("not root").kind is Kind.PROCESSES


def test_without_systemd_hosts_are_made_of_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(permission.os, "geteuid", lambda: 0)
    monkeypatch.setattr(permission, "systemd_program", lambda: None)
    assert "systemd is not installed" in what_is_permitted(tmp_path).why_not_namespaces


def test_the_attempt_leaves_nothing_behind(tmp_path, permitted_kinds):
    what_is_permitted(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_forced_kind_that_is_not_permitted_is_refused_with_the_reason(labs, monkeypatch):
    from fleetctl.lab import Lab, founding

    monkeypatch.setattr(founding, "what_is_permitted", lambda directory: Permitted("not root"))
    lab = Lab.at(labs.new_directory())
    with pytest.raises(LabError, match="does not permit hosts of namespaces") as refused:
        lab.up(kind=Kind.NAMESPACES, tree_source=labs.standin)
    assert refused.value.why == "not root"
    assert not lab.directory.exists()


def test_a_machine_that_is_not_linux_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(LabError, match="needs Linux"):
        check_machine()


def test_a_missing_sshd_is_named_with_the_package_to_install(tmp_path, monkeypatch):
    for name in ("ssh", "ssh-keygen"):
        (tmp_path / name).symlink_to(shutil.which("true") or "/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(commands, "SYSTEM_PATH", str(tmp_path))
    with pytest.raises(LabError, match="`sshd`") as missing:
        check_machine()
    assert missing.value.next_step == "apt-get install openssh-server"
