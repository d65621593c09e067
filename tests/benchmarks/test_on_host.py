"""What the matrix on a GPU machine runs can be read here: over there a failure costs a lease."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.gpu.on_host.__main__ import HERE, SPEC, Load, spec_text
from fleetctl.workflow.matrix import AskedMatrix, read_matrix

LOAD = Load.read(HERE / "load.toml")


@pytest.fixture
def asked(tmp_path):
    def read(groups: int) -> AskedMatrix:
        path = tmp_path / SPEC.name
        path.write_text(spec_text(SPEC.read_text("utf-8"), LOAD, groups), "utf-8")
        return read_matrix(path)

    (tmp_path / "payload").symlink_to(SPEC.parents[1] / "payload")
    return read


def test_first_come_the_cells_one_step_away_from_the_baseline(asked):
    baseline, *others = (dict(cell.levels) for cell in asked(0).cells)
    steps = [{name for name in cell if cell[name] != baseline[name]} for cell in others]
    count = Counter(name for step in steps for name in step)
    assert all(len(step) == 1 for step in steps)
    assert count == {"runner": 2, "keys": 1, "overlap": 1, "indexer": 2, "probe": 2, "batch": 1}


def test_each_group_of_further_cells_comes_on_top(asked):
    for groups in range(1, len(LOAD.then) + 1):
        before = {tuple(cell.levels) for cell in asked(groups - 1).cells}
        now = {tuple(cell.levels) for cell in asked(groups).cells}
        assert before < now
        assert len(now) == len(before) + len(LOAD.then[groups - 1])


def test_the_load_replaces_the_tables_of_the_spec(asked):
    text = spec_text(SPEC.read_text("utf-8"), LOAD, 0)
    changed = Load(LOAD.engine, {"workload": {"kind": "toolcall", "sessions": 7}}, ())
    assert text.count("[workload]") == text.count("[trials]") == 1
    assert "sessions = 7\n" in spec_text(text, changed, 0)
    assert asked(0).job.workload.model_dump().items() >= LOAD.tables["workload"].items()


def test_the_spec_says_what_the_load_says(asked):
    """Who runs the spec by itself measures the same."""
    assert read_matrix(SPEC).job.workload == asked(0).job.workload
    assert read_matrix(SPEC).job.trials == asked(0).job.trials
