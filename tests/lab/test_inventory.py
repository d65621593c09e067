"""The example in inventory/lab.toml is what `lab up` writes, so it can't rot."""

from __future__ import annotations

import tomllib
from pathlib import Path

from fleetctl.lab import Kind
from fleetctl.lab.inventory import inventory_text
from fleetctl.lab.paths import LabPaths
from fleetctl.lab.record import HostRecord, LabRecord

EXAMPLE = Path(__file__).parents[2] / "inventory" / "lab.toml"
LAB = LabPaths(Path("/home/you/fleetctl/.fleetctl/lab"))


def namespace_record():
    hosts = [HostRecord(f"lab-{i}", i, f"10.231.0.{i + 1}", 22, 30002, "/srv/dsv4") for i in (1, 2)]
    python = "/home/you/fleetctl/.venv/bin/python"
    return LabRecord("5eed5eed", Kind.NAMESPACES, "10.231.0", "root", python, hosts=tuple(hosts))


def test_the_example_is_what_is_written():
    assert EXAMPLE.read_text() == inventory_text(LAB, namespace_record(), machine="your-machine")


def test_hosts_of_processes_differ_in_ports_and_trees():
    hosts = [
        HostRecord(f"lab-{i}", i, "127.0.0.1", 2000 + i, 3000 + i, f"/lab/hosts/lab-{i}/srv/dsv4")
        for i in (1, 2)
    ]
    record = LabRecord(
        "5eed5eed", Kind.PROCESSES, "", "you", "/usr/bin/python3", hosts=tuple(hosts)
    )
    inventory = tomllib.loads(inventory_text(LAB, record, machine="m"))
    assert "port" not in inventory["defaults"]
    assert inventory["hosts"]["lab-2"] == {
        "address": "127.0.0.1",
        "port": 2002,
        "tree": "/lab/hosts/lab-2/srv/dsv4",
        "serve_scripts": ["/lab/hosts/lab-2/srv/dsv4/serve_dsv4_decode.sh"],
        "service_url": "http://127.0.0.1:3002",
    }


def test_a_path_with_quotes_and_backslashes_stays_what_it_is():
    odd = LabPaths(Path('/tmp/a "b" \\c/ü'))
    inventory = tomllib.loads(inventory_text(odd, namespace_record(), machine="m"))
    assert inventory["defaults"]["identity"] == str(odd.identity)
