"""The inventory that `lab up` writes: from here on the hosts are like any others."""

from __future__ import annotations

import json

from fleetctl.lab.paths import LabPaths
from fleetctl.lab.record import UNIT, HostRecord, Kind, LabRecord
from fleetctl.lab.serving_tree import MODEL

HEADER = "# Written by `fleetctl lab up`; changes are lost.\n"


def inventory_text(paths: LabPaths, record: LabRecord, *, machine: str) -> str:
    """Return the inventory of a lab on this machine as TOML."""
    shared: dict[str, object] = {
        "user": record.user,
        "known_hosts": str(paths.known_hosts),
        "identity": str(paths.identity),
        "roles": ["decode"],
        "python": record.python,
        "unit": UNIT,
        "health_path": "/health",
        "model": MODEL,
    }
    tables: dict[str, dict[str, object]] = {host.name: _of_host(host) for host in record.hosts}
    if record.kind is Kind.NAMESPACES and tables:
        # the hosts differ by address only, so that the file says it
        first = next(iter(tables.values()))
        shared |= {key: value for key, value in first.items() if key != "address"}
        tables = {name: {"address": table["address"]} for name, table in tables.items()}
    sections = [_section("defaults", shared, _labels(record, machine))]
    sections += [_section(f"hosts.{name}", table) for name, table in tables.items()]
    sections.append(_section("groups", {"lab": list(tables)}))
    return HEADER + "\n".join(sections)


def _of_host(host: HostRecord) -> dict[str, object]:
    return {
        "address": host.address,
        "port": host.port,
        "tree": host.tree,
        "serve_scripts": [host.serve_script],
        "service_url": f"http://127.0.0.1:{host.service_port}",
    }


def _section(name: str, values: dict[str, object], *more: str) -> str:
    # strings, numbers and lists of strings are written alike in JSON and TOML
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, *more, ""])


def _labels(record: LabRecord, machine: str) -> str:
    """Return the labels; hosts of one `machine` disturb each other and are measured in turn."""
    labels = {"gpu": record.gpu or "none", "class": f"lab-{record.kind}", "machine": machine}
    return (
        f"labels = {{ {', '.join(f'{key} = {json.dumps(text)}' for key, text in labels.items())} }}"
    )
