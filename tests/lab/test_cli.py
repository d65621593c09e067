"""`fleetctl lab` as people type it: data on stdout, talk on stderr, options before NAME."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
PROGRAM = """
import typer
from fleetctl.cli.boundary import run_guarded
from fleetctl.cli.lab import lab
raise SystemExit(run_guarded(lab))
"""


@pytest.fixture
def type_command():
    def run(*words):
        argv = [sys.executable, "-c", PROGRAM, *map(str, words)]
        return subprocess.run(argv, capture_output=True, text=True, check=False)

    return run


def test_status_is_a_table_for_people_and_a_document_for_programs(type_command, lab_hosts):
    directory = lab_hosts.lab.directory
    table = type_command("status", "--dir", directory)
    assert table.returncode == 0
    lines = table.stdout.splitlines()
    assert lines[0].split() == ["HOST", "STATE", "ADDRESS", "SERVICE"]
    assert [line.split()[:2] for line in lines[1:]] == [["lab-1", "up"], ["lab-2", "up"]]
    assert f"inventory: {lab_hosts.inventory}" in table.stderr
    assert "can't show" in table.stderr
    document = json.loads(type_command("status", "--json", "--dir", directory).stdout)
    assert [host["name"] for host in document["hosts"]] == ["lab-1", "lab-2"]
    assert document["cannot_show"]


def test_ssh_passes_the_commands_own_options_and_exit_code_on(type_command, lab_hosts):
    directory = lab_hosts.lab.directory
    said = type_command("ssh", "--dir", directory, "lab-2", "ls", "-d", "--", "/srv")
    assert (said.returncode, said.stdout) == (0, "/srv\n")
    assert type_command("ssh", "--dir", directory, "lab-2", "exit 7").returncode == 7


def test_the_life_of_a_host_at_the_command_line(type_command, fresh_lab):
    directory = fresh_lab(1).lab.directory
    assert "lab-1 has no power" in type_command("kill", "--dir", directory, "lab-1").stderr
    assert "killed" in type_command("status", "--dir", directory).stdout
    assert "lab-1 answers" in type_command("boot", "--dir", directory, "lab-1").stderr
    gone = type_command("down", "--dir", directory)
    assert (gone.returncode, gone.stdout) == (0, "")
    assert f"the lab in {directory} is gone" in gone.stderr
    again = type_command("down", "--dir", directory)
    assert again.returncode == 0
    assert "is not there" in again.stderr


def test_a_lab_that_is_not_there_is_no_error_to_look_at_but_one_to_act_on(type_command, tmp_path):
    nowhere = tmp_path / "lab"
    status = type_command("status", "--dir", nowhere)
    assert (status.returncode, status.stdout) == (0, "")
    document = json.loads(type_command("status", "--json", "--dir", nowhere).stdout)
    assert (document["kind"], document["hosts"]) == (None, [])
    act = type_command("kill", "--dir", nowhere, "lab-1")
    assert act.returncode == 3
    assert f"hint: fleetctl lab up --dir {nowhere}" in act.stderr


def test_an_unknown_kind_is_a_usage_error(type_command, tmp_path):
    done = type_command("up", "--kind", "containers", "--dir", tmp_path / "lab")
    assert done.returncode == 2
    assert "it is namespaces or processes" in done.stderr


def test_arguments_of_the_engine_that_no_shell_could_read_are_a_usage_error(type_command, tmp_path):
    done = type_command("up", "--engine", "--depth '2", "--dir", tmp_path / "lab")
    assert done.returncode == 2
    assert "No closing quotation" in done.stderr
    assert not (tmp_path / "lab").exists()
