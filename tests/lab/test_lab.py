"""What a lab promises, on each kind of host that this machine permits."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import tomllib

import pytest

from fleetctl.errors import LabError
from fleetctl.lab import HostState, Kind, Lab
from fleetctl.lab.machine import pids_matching
from fleetctl.lab.record import UNIT

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
SLEEP = f"sleep 4321.{os.getpid()}"  # told from those of other test runs
FETCH = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"


def test_every_host_answers_with_the_key_that_known_hosts_has(lab_of_each_kind):
    for name in ("lab-1", "lab-2"):
        assert lab_of_each_kind.run(name, "echo hello") == "hello\n"
    assert set(lab_of_each_kind.states().values()) == {HostState.UP}


def test_a_host_with_another_hosts_key_is_refused(lab_of_each_kind, tmp_path):
    lab = lab_of_each_kind.lab
    lines = [line.split(" ", 1) for line in lab.paths.known_hosts.read_text().splitlines()]
    keys = [key for _, key in lines]
    assert len(set(keys)) == 2
    swapped = tmp_path / "known_hosts"
    swapped.write_text("".join(f"{lines[i][0]} {keys[1 - i]}\n" for i in (0, 1)))
    argv = lab.ssh_argv("lab-1", ["true"])
    argv = [part.replace(str(lab.paths.known_hosts), str(swapped)) for part in argv]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr


def test_the_inventory_says_how_to_reach_each_host_and_its_service(lab_of_each_kind):
    inventory = tomllib.loads(lab_of_each_kind.inventory.read_text())
    defaults = inventory["defaults"]
    assert defaults["unit"] == UNIT
    assert defaults["labels"]["class"] == f"lab-{lab_of_each_kind.lab.status().kind}"
    assert inventory["groups"]["lab"] == list(inventory["hosts"]) == ["lab-1", "lab-2"]
    for name, own in inventory["hosts"].items():
        host, merged = lab_of_each_kind.lab.host(name), defaults | own
        assert (merged["address"], merged["port"]) == (host.address, host.port)
        assert merged["serve_scripts"] == [f"{merged['tree']}/serve_dsv4_decode.sh"]
        assert merged["service_url"] == f"http://127.0.0.1:{host.service_port}"


def test_a_host_serves_its_own_tree_with_the_flags_of_its_script(lab_of_each_kind):
    host = lab_of_each_kind.lab.host("lab-1")
    for slot, found_as in (("indexer", "transient"), ("runner", "captured"), ("cache", "bf16")):
        python = f"{host.tree}/python"
        pair = f"{python}/serve/dsv4/{slot}.py {python}/payload/{slot}/{found_as}.py"
        lab_of_each_kind.run("lab-1", f"cmp {pair}")
    url = f"http://127.0.0.1:{host.service_port}/flags"
    flags = lab_of_each_kind.run(
        "lab-1", f"until python3 -c '{FETCH}' {url} 2>/dev/null; do sleep 0.1; done"
    )
    assert '"SGLANG_DSV4_BF16_INDEX_K": "1"' in flags
    assert '"SGLANG_DSV4_GE_DIFF": "0"' in flags


def test_a_flag_edited_in_the_script_reaches_the_service_by_a_restart(fresh_lab, lab_kind):
    running = fresh_lab(kind=lab_kind)
    script = running.lab.host("lab-1").serve_script
    running.run("lab-1", f"sed -i 's/^\\(export SGLANG_DSV4_GE_DIFF\\)=0/\\1=1/' {script}")
    running.run("lab-1", f"systemctl restart {UNIT}")
    pid = running.run("lab-1", f"systemctl show -p MainPID {UNIT}").strip().partition("=")[2]
    # the script exports before it becomes the server
    has_flag = f"tr '\\0' '\\n' </proc/{pid}/environ | grep -qx SGLANG_DSV4_GE_DIFF=1"
    running.run("lab-1", f"until {has_flag}; do sleep 0.1; done")


def test_a_host_cut_from_power_loses_its_processes_and_keeps_its_files(fresh_lab, lab_kind):
    running = fresh_lab(2, kind=lab_kind)
    tree = running.lab.host("lab-1").tree
    running.wait_until_active("lab-1")
    orphan = f"env -i setsid {SLEEP} >/dev/null 2>&1 </dev/null &"
    running.run("lab-1", f"echo kept >{tree}/kept; {orphan}")
    wait_for_process(f"^{SLEEP}$")
    before = running.run("lab-1", f"systemctl show -p InvocationID {UNIT}")
    running.lab.kill("lab-1")
    assert running.states() == {"lab-1": HostState.KILLED, "lab-2": HostState.UP}
    assert processes_like(f"^{SLEEP}$") == []
    running.lab.boot("lab-1")
    assert running.states()["lab-1"] is HostState.UP
    assert running.run("lab-1", f"cat {tree}/kept") == "kept\n"
    running.wait_until_active("lab-1")
    assert running.run("lab-1", f"systemctl show -p InvocationID {UNIT}") != before


def wait_for_process(pattern):
    """Wait until a process with such a command line runs on this machine, in a host or not."""
    waited = threading.Event()
    for _ in range(500):
        if processes_like(pattern):
            return
        waited.wait(0.02)
    pytest.fail(f"no process like {pattern}")


def processes_like(pattern):
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return re.findall(pattern, listing.stdout, re.MULTILINE)


def test_processes_that_keep_multiplying_die_with_their_host(fresh_lab, lab_kind):
    running = fresh_lab(kind=lab_kind)
    name = f"again-{os.getpid()}.sh"
    path = running.lab.disk("lab-1") / name if lab_kind is Kind.PROCESSES else f"/srv/{name}"
    write = f"printf '#!/bin/sh\n$0 & exec sleep 0.02\n' >{path}; chmod +x {path}"
    running.run("lab-1", f"{write}; env -i setsid {path} >/dev/null 2>&1 </dev/null &")
    wait_for_process(f"{path}$")
    running.lab.kill("lab-1")
    assert running.states() == {"lab-1": HostState.KILLED}
    assert processes_like(f"{path}$") == []


def test_killing_and_booting_twice_is_like_once(fresh_lab, lab_kind):
    running = fresh_lab(kind=lab_kind)
    running.lab.boot("lab-1")
    running.lab.kill("lab-1")
    running.lab.kill("lab-1")
    running.lab.boot("lab-1")
    assert running.states() == {"lab-1": HostState.UP}


def test_up_keeps_hosts_boots_killed_ones_and_adds_what_is_missing(fresh_lab, labs, lab_kind):
    running = fresh_lab(1, kind=lab_kind)
    tree = running.lab.host("lab-1").tree
    running.run("lab-1", f"echo kept >{tree}/kept")
    running.lab.kill("lab-1")
    source = running.lab.directory.parent / "other"
    shutil.copytree(labs.standin, source)
    (source / "indexer" / "another.py").write_text("NAME = 'another'\n")
    running.lab.up(2, tree_source=source)
    assert running.states() == {"lab-1": HostState.UP, "lab-2": HostState.UP}
    assert running.run("lab-1", f"cat {tree}/kept") == "kept\n"
    # lab-1 still has the tree it was made with, and status compares each with its own source
    assert running.lab.status().stale_hosts == ()
    (source / "indexer" / "another.py").write_text("NAME = 'changed'\n")
    assert running.lab.status().stale_hosts == ("lab-2",)


def test_a_host_that_stops_by_itself_is_told_from_a_killed_one(fresh_lab, lab_kind):
    running = fresh_lab(kind=lab_kind)
    if lab_kind is Kind.NAMESPACES:
        argv = running.lab.ssh_argv("lab-1", ["systemctl --force --force poweroff"])
        subprocess.run(argv, capture_output=True, check=False)  # the host can't say goodbye
    else:
        first = rb"\0" + bytes(running.lab.disk("lab-1")) + rb"\0@boot\0"
        for pid in pids_matching("cmdline", re.compile(first)):
            os.kill(pid, signal.SIGKILL)
    wait_for_state(running, HostState.STOPPED)
    running.lab.boot("lab-1")
    assert running.states() == {"lab-1": HostState.UP}


def wait_for_state(running, state):
    waited = threading.Event()
    for _ in range(200):
        if running.states()["lab-1"] is state:
            return
        waited.wait(0.05)
    pytest.fail(f"lab-1 is {running.states()['lab-1']}, not {state}")


def test_a_host_whose_sshd_is_gone_is_silent(fresh_lab, lab_kind):
    running = fresh_lab(kind=lab_kind)
    # ssh.service keeps sessions alive, so the answer still comes back
    running.run("lab-1", "systemctl stop ssh.service")
    assert running.states() == {"lab-1": HostState.SILENT}


def test_two_labs_come_up_at_once_and_end_one_by_one(labs, lab_kind):
    made = {}

    def make(number):
        made[number] = labs.up(1, kind=lab_kind)

    threads = [threading.Thread(target=make, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = made[1], made[2]
    hosts = [running.lab.host("lab-1") for running in (first, second)]
    assert len({(host.address, host.port) for host in hosts}) == 2
    labs.down(first.lab.directory.parent)
    assert second.states() == {"lab-1": HostState.UP}
    assert second.run("lab-1", "echo alive") == "alive\n"
    labs.down(second.lab.directory.parent)


def test_down_leaves_nothing_and_may_be_repeated(labs, lab_kind):
    running = labs.up(2, kind=lab_kind)
    lab = running.lab
    assert lab.down() is True
    assert not lab.directory.exists()
    assert lab.down() is False
    labs.down(lab.directory.parent)
    assert labs.left_behind_in(lab.directory.parent) == []


@pytest.mark.parametrize("lost", ["record", "unreadable record", "directory"])
def test_down_finds_a_lab_whose_record_is_lost(labs, lab_kind, lost):
    running = labs.up(1, kind=lab_kind)
    lab = running.lab
    record = lab.directory / "lab.json"
    labs.remember(lab)
    if lost == "directory":
        while lab.directory.exists():  # its hosts live, and write into it meanwhile
            shutil.rmtree(lab.directory, ignore_errors=True)
    elif lost == "record":
        record.unlink()
    else:
        record.write_text('{"version": 1, "hos')
    assert lab.down() is True
    labs.down(lab.directory.parent)
    assert labs.left_behind_in(lab.directory.parent) == []


def test_down_keeps_files_that_are_not_the_labs(labs, lab_kind):
    running = labs.up(1, kind=lab_kind)
    notes = running.lab.directory / "notes.txt"
    notes.write_text("mine")
    running.lab.down()
    assert notes.read_text() == "mine"
    notes.unlink()


def test_a_directory_with_something_else_in_it_is_refused(labs, permitted_kinds):
    directory = labs.new_directory()
    directory.mkdir()
    (directory / "thesis.tex").write_text("")
    with pytest.raises(LabError, match="will not make a lab") as refused:
        Lab.at(directory).up(tree_source=labs.standin)
    assert "thesis.tex" in refused.value.why
    assert [entry.name for entry in directory.iterdir()] == ["thesis.tex"]


def test_a_directory_with_an_odd_name_is_used_or_refused_at_once(labs, lab_kind):
    directory = labs.new_directory() / "a b,c:\u00fc"
    lab = Lab.at(directory)
    if lab_kind is Kind.PROCESSES:
        with pytest.raises(LabError, match="will not make a lab of processes") as refused:
            lab.up(kind=lab_kind, tree_source=labs.standin)
        assert refused.value.why.endswith("' ' ',' ':' '\u00fc'")
    else:
        lab.up(kind=lab_kind, tree_source=labs.standin)
        assert lab.states() == {"lab-1": HostState.UP}
        done = subprocess.run(lab.ssh_argv("lab-1", ["echo hi"]), capture_output=True, check=True)
        assert done.stdout == b"hi\n"
    lab.down()
    assert not directory.exists()


def test_an_unknown_host_is_named_with_those_that_are_there(lab_of_each_kind):
    with pytest.raises(LabError, match="unknown lab host: lab-9") as unknown:
        lab_of_each_kind.lab.kill("lab-9")
    assert unknown.value.why == "the lab has lab-1, lab-2"


def test_acts_on_a_lab_that_is_not_there_say_how_to_make_it(tmp_path):
    lab = Lab.at(tmp_path / "lab")
    for act in (lab.kill, lab.boot, lab.cut, lab.heal, lab.ssh_argv, lab.host):
        with pytest.raises(LabError, match="there is no lab"):
            act("lab-1")
    assert lab.hosts == ()
    assert lab.status().kind is None
    assert not lab.directory.exists()


def test_a_lab_does_not_change_its_kind(lab_of_each_kind, labs):
    lab = lab_of_each_kind.lab
    other = next(kind for kind in Kind if kind is not lab.status().kind)
    with pytest.raises(LabError, match="is made of"):
        lab.up(2, kind=other, tree_source=labs.standin)


@pytest.mark.parametrize("count", [0, 251])
def test_a_lab_has_at_least_one_host_and_at_most_what_its_network_holds(
    lab_of_each_kind, labs, count
):
    with pytest.raises(LabError, match=f"can't have {count} hosts"):
        lab_of_each_kind.lab.up(count, tree_source=labs.standin)


def test_a_payload_without_its_slots_is_refused_before_anything_is_made(
    labs, permitted_kinds, tmp_path
):
    (tmp_path / "engine").mkdir()
    lab = Lab.at(labs.new_directory())
    with pytest.raises(LabError, match="cannot make a serving tree") as refused:
        lab.up(tree_source=tmp_path)
    assert refused.value.why == "it has no indexer/transient.py, runner/captured.py, cache/bf16.py"
    assert not lab.directory.exists()


def test_sftp_works(lab_of_each_kind, tmp_path):
    argv = lab_of_each_kind.lab.ssh_argv("lab-1")
    where = argv.pop()
    argv[0] = shutil.which("sftp") or "/usr/bin/sftp"
    argv[argv.index("-p")] = "-P"
    local = tmp_path / "hostname"
    done = subprocess.run(
        [*argv, "-q", "-b", "-", where],
        input=f"get /etc/hostname {local}\n",
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert local.exists()


def test_a_service_port_of_a_namespace_host_is_closed_to_its_neighbours(namespace_lab):
    namespace_lab.wait_until_active("lab-1")
    host = namespace_lab.lab.host("lab-1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host.address, host.service_port), timeout=5)
