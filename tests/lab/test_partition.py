"""A host cut from the network runs on, out of reach; hosts of processes say they can't."""

from __future__ import annotations

import socket
import subprocess

import pytest

from fleetctl.errors import LabError
from fleetctl.lab import HostState, Kind

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture
def namespace_host(namespace_lab, fresh_lab):
    return fresh_lab(1, kind=Kind.NAMESPACES)


def test_packets_to_a_cut_host_vanish_instead_of_being_refused(namespace_host):
    host = namespace_host.lab.host("lab-1")
    namespace_host.lab.cut("lab-1")
    assert namespace_host.states() == {"lab-1": HostState.CUT}
    with pytest.raises(TimeoutError):
        socket.create_connection((host.address, host.port), timeout=0.5)
    namespace_host.lab.heal("lab-1")
    assert namespace_host.states() == {"lab-1": HostState.UP}
    assert namespace_host.run("lab-1", "echo back") == "back\n"


def test_a_connection_outlives_a_short_partition_and_the_host_runs_on(namespace_host):
    argv = namespace_host.lab.ssh_argv("lab-1", ["echo began; read line; echo got $line"])
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0
    ) as login:
        assert login.stdout.readline() == "began\n"
        namespace_host.lab.cut("lab-1")
        login.stdin.write("hello\n")
        with pytest.raises(subprocess.TimeoutExpired):
            login.wait(timeout=0.5)
        namespace_host.lab.heal("lab-1")
        assert login.stdout.readline() == "got hello\n"


def test_a_partition_outlives_a_boot_and_up_ends_it(namespace_host, labs):
    namespace_host.lab.cut("lab-1")
    namespace_host.lab.kill("lab-1")
    assert namespace_host.states() == {"lab-1": HostState.KILLED}
    namespace_host.lab.boot("lab-1")
    assert namespace_host.states() == {"lab-1": HostState.CUT}
    namespace_host.lab.up(1, tree_source=labs.standin)
    assert namespace_host.states() == {"lab-1": HostState.UP}


def test_hosts_of_processes_refuse_to_be_cut_and_say_why(process_lab):
    for act in (process_lab.lab.cut, process_lab.lab.heal):
        with pytest.raises(LabError, match="can't be cut from the network") as refused:
            act("lab-1")
        assert "loopback" in refused.value.why
    assert process_lab.states() == {"lab-1": HostState.UP}
