"""What a host of namespaces is: a machine of its own, that can't hurt the one it runs on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fleetctl.errors import LabError
from fleetctl.lab import HostState, Kind, Lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
MIB = 1024 * 1024


def test_systemd_runs_and_no_unit_of_the_machine_failed(namespace_lab):
    namespace_lab.wait_until_active("lab-1")
    assert namespace_lab.run("lab-1", "systemctl is-system-running --wait") == "running\n"
    assert namespace_lab.run("lab-1", "systemctl --failed --plain --no-legend") == ""
    services = "systemctl list-units --type=service --state=running --plain --no-legend"
    running = {line.split()[0] for line in namespace_lab.run("lab-1", services).splitlines()}
    assert running <= {
        "dbus.service",
        "sglang-dsv4-decode.service",
        "ssh.service",
        "systemd-journald.service",
    }


def test_transient_units_and_timers_work(namespace_lab):
    assert namespace_lab.run("lab-1", "systemd-run --quiet --wait --pipe echo hi") == "hi\n"
    mark = "/run/timer-was-here"
    timer = f"--on-active=100ms --timer-property=AccuracySec=10ms touch {mark}"
    namespace_lab.run("lab-1", f"systemd-run --quiet {timer}")
    namespace_lab.run("lab-1", f"until test -e {mark}; do sleep 0.05; done")


def test_the_serving_interpreter_is_there_with_its_packages(namespace_lab):
    program = "import pydantic, sys; print(sys.prefix)"
    said = namespace_lab.run("lab-1", f"{sys.executable} -c '{program}'")
    assert said.strip() == sys.prefix


def test_a_host_sees_nothing_of_the_machines_homes(namespace_lab):
    seen = set(namespace_lab.run("lab-1", "ls -A /root").split())
    shared = Path(sys.base_prefix)
    assert seen <= {".ssh"} | ({shared.parts[2]} if shared.parts[1] == "root" else set())
    assert namespace_lab.run("lab-1", "ls -A /home").split() == []


def test_a_host_sees_neither_keys_nor_disks_of_its_lab(namespace_lab, labs):
    directory = labs.new_directory(Path("/var/tmp"))  # a place that hosts share with the machine
    lab = Lab.at(directory)
    lab.up(tree_source=labs.standin)
    look = ["ls -Ad /var/tmp/fleetctl-test-*/lab; ls -A /var/tmp/fleetctl-test-*/lab"]
    done = subprocess.run(lab.ssh_argv("lab-1", look), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(directory)]
    labs.down(directory.parent)


def test_a_host_can_neither_set_the_clock_nor_the_kernel_of_the_machine(namespace_lab):
    before = Path("/proc/sys/kernel/panic").read_text()
    for command in ("date -s 2001-01-01", "echo 77 >/proc/sys/kernel/panic"):
        done = namespace_lab.run("lab-1", f"({command}) 2>&1; echo code=$?")
        assert "code=0" not in done
    assert Path("/proc/sys/kernel/panic").read_text() == before
    # its own network is its own
    namespace_lab.run("lab-1", "echo 1 >/proc/sys/net/ipv4/ip_forward")
    namespace_lab.run("lab-1", "echo 0 >/proc/sys/net/ipv4/ip_forward")


def test_what_a_host_writes_stays_on_the_host(namespace_lab, fresh_lab):
    lab = fresh_lab(2, kind=Kind.NAMESPACES)
    lab.run("lab-1", "echo changed >/etc/motd; rm -f /etc/debian_version; touch /usr/mine")
    assert not Path("/usr/mine").exists()
    assert (lab.lab.disk("lab-1") / "usr/mine").exists()
    assert lab.run("lab-2", "ls /usr/mine 2>/dev/null || echo none") == "none\n"


def test_each_boot_has_an_id_of_its_own_and_the_journal_keeps_the_last_one(
    namespace_lab, fresh_lab
):
    running = fresh_lab(1, kind=Kind.NAMESPACES)
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    first = running.run("lab-1", boot_id)
    running.lab.kill("lab-1")
    running.lab.boot("lab-1")
    second = running.run("lab-1", boot_id)
    machine = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert len({first, second, machine}) == 3
    boots = running.run("lab-1", "journalctl --list-boots --no-pager")
    for boot in (first, second):
        assert boot.strip().replace("-", "") in boots


def test_a_small_disk_really_is_full_and_survives_a_boot(namespace_lab, fresh_lab):
    running = fresh_lab(1, kind=Kind.NAMESPACES, disk_bytes=32 * MIB)
    fill = "(cat /dev/zero >/srv/fill) 2>&1 || true"
    assert "No space left on device" in running.run("lab-1", fill)
    assert "No space left" in running.run("lab-1", "(echo hi >/srv/more) 2>&1 || true")
    running.lab.kill("lab-1")
    running.lab.boot("lab-1")
    assert "No space left" in running.run("lab-1", "(echo hi >/srv/more) 2>&1 || true")
    running.run("lab-1", "rm /srv/fill; echo hi >/srv/more")


def test_hosts_of_processes_refuse_a_disk_of_their_own(labs, fresh_lab):
    with pytest.raises(LabError, match="can't have a disk of its own"):
        fresh_lab(1, kind=Kind.PROCESSES, disk_bytes=MIB)
    assert labs.directories[-1].exists()


def test_a_host_that_can_not_boot_is_reported_with_its_console(namespace_lab, fresh_lab):
    running = fresh_lab(1, kind=Kind.NAMESPACES)
    running.lab.kill("lab-1")
    disk = running.lab.disk("lab-1")
    (disk.parent / "work").rename(disk.parent / "elsewhere")
    with pytest.raises(LabError, match="lab-1 does not answer") as failed:
        running.lab.boot("lab-1")
    assert "mount" in failed.value.why
    assert running.states() == {"lab-1": HostState.STOPPED}


def test_the_umask_of_the_operator_is_not_the_hosts(namespace_lab, labs):
    lab_directory = labs.new_directory()
    program = (
        "import os, sys; os.umask(0o077); from pathlib import Path; from fleetctl.lab import Lab; "
        "Lab.at(Path(sys.argv[1])).up(tree_source=Path(sys.argv[2]))"
    )
    argv = [sys.executable, "-c", program, str(lab_directory), str(labs.standin)]
    subprocess.run(argv, check=True)
    lab = Lab.at(lab_directory)
    modes = "stat -c %a / /etc /srv/dsv4 /srv/dsv4/python/payload/engine/__main__.py"
    done = subprocess.run(
        lab.ssh_argv("lab-1", [modes]), capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["755", "755", "755", "644"]
    labs.down(lab_directory.parent)
