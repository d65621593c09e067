"""A small matrix and inventory for tests of campaigns, and trials that never were."""

from __future__ import annotations

from pathlib import Path

from fleetctl.spec.inventory import Host, Inventory
from fleetctl.store.campaign import CellResult, CellRun
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.matrix import AskedMatrix, read_matrix

TEXT = """
[experiment]
name = "m"
target = "fleet"
[matrix]
baseline = {{ keys = "bf16", overlap = "on" }}
{rules}
[[factor]]
name = "keys"
[[factor.level]]
name = "bf16"
env = {{ KEYS = "1" }}
[[factor.level]]
name = "fp8"
env = {{ KEYS = "0" }}
[[factor]]
name = "overlap"
[[factor.level]]
name = "on"
env = {{ OVERLAP = "1" }}
[[factor.level]]
name = "off"
env = {{ OVERLAP = "0" }}
[workload]
kind = "command"
argv = ["true"]
[trials]
runs = {runs}
{trials}
"""


def asked(
    folder: Path, *, rules: str = "", runs: int = 1, trials: str = "", text: str = TEXT
) -> AskedMatrix:
    path = folder / "matrix.toml"
    path.write_text(text.format(rules=rules, runs=runs, trials=trials))
    return read_matrix(path)


def host(**labels: str) -> Host:
    return Host(
        address="127.0.0.1",
        roles=("fleet",),
        tree="/srv/dsv4",
        python="/usr/bin/python3",
        unit="d.service",
        service_url="http://127.0.0.1:30002",
        model="m",
        labels=labels,
    )


def fleet(count: int = 3, **labels: str) -> Inventory:
    return Inventory(
        hosts={f"h{n}": host(**{"gpu": "h200", **labels}) for n in range(1, count + 1)}
    )


def facts_of(
    run: CellRun, site: str, *, bad: int = 0, counted: int = 40, at_s: float = 0.0, **more: object
) -> TrialFacts:
    values: dict[str, object] = {
        "trial": f"trials/{run.id}-{run.attempt}-{site}",
        "arm": run.cell,
        "host": site,
        "host_class": "h200",
        "run_index": run.run,
        "block": "",
        "block_runs": 0,
        "started_s": at_s or float(run.position + 1),
        "wall_s": 1.0,
        "boot": f"{run.id}-{run.attempt}",
        "corrupted": bad,
        "counted": counted,
        "infra": 0,
        "planned": 40,
        "counts": {"leak": bad, "done": counted - bad},
        "line": "",
        "exposure": {},
        "lag_p99_ms": None,
        "concurrency_share": None,
        "patches": {},
        "processes": (),
        "workload_sha256": "w",
    }
    return TrialFacts(**{**values, **more})  # type: ignore[arg-type]


def result_of(run: CellRun, site: str, epoch: str = "boot", **more: object) -> CellResult:
    facts = facts_of(run, site, **more)  # type: ignore[arg-type]
    return CellResult(run.id, run.digest, site, epoch, facts.trial, facts.to_json())
