"""`fleetctl check`: everything that can be known about a spec without a network."""

from __future__ import annotations

from pathlib import Path

from fleetctl.cli.options import AsJson, SpecPath
from fleetctl.cli.search import check_search


def check(spec: SpecPath, as_json: AsJson = False) -> None:
    """Check a spec: TOML, cross references, payload, design. No host is contacted."""
    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.spec.arms import arms_of
    from fleetctl.spec.bisect_kinds import search_kind
    from fleetctl.spec.guards import check_design
    from fleetctl.spec.kinds import is_matrix
    from fleetctl.spec.loader import load_experiment

    if is_matrix(spec):
        _check_matrix(spec, as_json)
        return
    if search_kind(spec) is not None:
        check_search(spec, as_json)
        return
    experiment = load_experiment(spec)
    guards = check_design(experiment, arms_of(experiment, spec))
    differences = [str(difference) for difference in guards.differences]
    if as_json:
        found = {"spec": str(spec), "ok": True, "differences": differences}
        print_json({**found, "labels": guards.labels, "warnings": guards.warnings})
        return
    print_lines([f"{spec}: ok", *(f"  differs in {line}" for line in differences)])
    print_lines(f"  note: {warning}" for warning in guards.warnings)


def _check_matrix(spec: Path, as_json: bool) -> None:
    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.workflow.matrix import read_matrix

    cells = read_matrix(spec).cells
    if as_json:
        names = [{"cell": cell.name, "digest": cell.digest} for cell in cells]
        print_json({"spec": str(spec), "ok": True, "cells": names})
        return
    print_lines([f"{spec}: ok, {len(cells)} cells", *(f"  {cell.name}" for cell in cells)])
