"""What a host of processes is: its own sshd, systemctl and journalctl, not the machine's."""

from __future__ import annotations

import json
import subprocess

import pytest

from fleetctl.lab.record import UNIT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def shown(running, *properties, unit=UNIT):
    words = " ".join(f"-p {name}" for name in properties)
    lines = running.run("lab-1", f"systemctl show {words} {unit}").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_programs_that_would_act_on_the_machine_are_refused(process_lab):
    commands = ["systemctl halt", "systemctl poweroff", "systemctl reboot", "systemctl init"]
    commands += ["reboot", "poweroff", "halt", "shutdown now", "systemd-run true"]
    tried = "".join(f"{command} 2>&1; echo $?\n" for command in commands)
    said = process_lab.run("lab-1", tried).splitlines()
    assert said[1::2] == ["1"] * len(commands)
    assert all("not on a host made of processes" in line for line in said[::2])


def test_a_crashed_service_is_restarted_with_another_invocation(process_lab):
    process_lab.run("lab-1", f"systemctl restart {UNIT}")
    before = shown(process_lab, "MainPID", "InvocationID", "NRestarts")
    assert before["NRestarts"] == "0"
    process_lab.run("lab-1", f"kill -9 {before['MainPID']}")
    counter = f"systemctl show -p NRestarts {UNIT}"
    process_lab.run("lab-1", f"until [ $({counter}) = NRestarts=1 ]; do sleep 0.2; done")
    after = shown(process_lab, "InvocationID", "NRestarts")
    assert after["InvocationID"] != before["InvocationID"]
    process_lab.run("lab-1", f"systemctl restart {UNIT}")
    assert shown(process_lab, "NRestarts")["NRestarts"] == "0"


def test_the_environment_of_a_service_is_not_that_of_the_login(process_lab):
    process_lab.run("lab-1", f"STRAY=1 systemctl restart {UNIT}")
    pid = shown(process_lab, "MainPID")["MainPID"]
    environment = process_lab.run("lab-1", f"tr '\\0' '\\n' </proc/{pid}/environ")
    names = {line.partition("=")[0] for line in environment.splitlines()}
    assert {"PATH", "INVOCATION_ID"} <= names
    assert not names & {"STRAY", "SSH_CONNECTION", "USER", "HOME"}


def test_drop_ins_and_environment_files_below_the_host_are_used(process_lab):
    units = process_lab.lab.disk("lab-1") / "etc/systemd/system"
    drop_in = units / f"{UNIT}.d" / "90-flags.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nEnvironment=FROM_DROP_IN=1\nEnvironmentFile=/etc/flags.env\n")
    (process_lab.lab.disk("lab-1") / "etc/flags.env").write_text("FROM_FILE=2\n")
    process_lab.run("lab-1", f"systemctl daemon-reload; systemctl restart {UNIT}")
    found = shown(process_lab, "MainPID", "FragmentPath", "DropInPaths", "EnvironmentFiles")
    assert found["FragmentPath"] == str(units / UNIT)
    assert found["DropInPaths"] == str(drop_in)
    environment_file = process_lab.lab.disk("lab-1") / "etc/flags.env"
    assert found["EnvironmentFiles"] == f"{environment_file} (ignore_errors=no)"
    environment = process_lab.run("lab-1", f"tr '\\0' '\\n' </proc/{found['MainPID']}/environ")
    assert {"FROM_DROP_IN=1", "FROM_FILE=2"} <= set(environment.splitlines())


def write_unit(running, name, script):
    units = running.lab.disk("lab-1") / "etc/systemd/system"
    text = f"[Service]\nType=simple\nRestart=no\nExecStart=/bin/sh -c '{script}'\n"
    (units / name).write_text(text)


def test_journalctl_shows_the_lines_of_one_invocation(process_lab):
    write_unit(process_lab, "talk.service", "echo from $INVOCATION_ID; exec sleep 60")
    log = process_lab.lab.disk("lab-1") / "var/log/journal/talk.service.log"
    ids = []
    for _ in range(2):
        process_lab.run("lab-1", "systemctl restart talk.service")
        ids.append(shown(process_lab, "InvocationID", unit="talk.service")["InvocationID"])
        process_lab.run("lab-1", f"until grep -q {ids[-1]} {log}; do sleep 0.05; done")
    for found in ids:
        match = f"_SYSTEMD_INVOCATION_ID={found} + INVOCATION_ID={found}"
        said = process_lab.run("lab-1", f"journalctl --no-pager --quiet -o cat {match}")
        assert said == f"from {found}\n"
    both = process_lab.run("lab-1", "journalctl -u talk --output=short-iso -n 5 --no-pager")
    assert [line.split()[-1] for line in both.splitlines()] == ids
    last = process_lab.run("lab-1", "journalctl -u talk.service -n 1 -o cat")
    assert last == f"from {ids[1]}\n"
    assert process_lab.run("lab-1", "journalctl -u talk.service --since @4000000000") == ""


def test_journalctl_refuses_what_it_does_not_know(process_lab):
    for command in ("journalctl --dmesg", "journalctl _PID=1", "journalctl --since yesterday"):
        argv = process_lab.lab.ssh_argv("lab-1", [command])
        assert subprocess.run(argv, capture_output=True, check=False).returncode != 0


def test_tools_of_fleetctl_keep_their_state_on_the_host(process_lab):
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    environment = json.loads(process_lab.run("lab-1", f"python3 -c '{program}'"))
    host = str(process_lab.lab.disk("lab-1"))
    for name in ("FLEETCTL_STATE", "HOME", "TMPDIR"):
        assert environment[name].startswith(f"{host}/")
    assert environment["PATH"].startswith(f"{host}/bin:")
