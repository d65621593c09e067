"""What is chosen once, when a lab begins."""

from __future__ import annotations

import pytest

from fleetctl.errors import LabError
from fleetctl.lab import Kind, Lab, LabStatus
from fleetctl.lab.founding import gpu_of_machine
from fleetctl.lab.record import LabRecord, write_record


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("echo NVIDIA H200; echo NVIDIA H200", "NVIDIA H200"),
        ("true", ""),
        ("echo no devices were found; exit 6", ""),
    ],
)
def test_the_gpu_is_what_the_driver_says(tmp_path, monkeypatch, program, name):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\n{program}\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert gpu_of_machine() == name


def test_the_engine_of_a_lab_is_chosen_once(tmp_path):
    record = LabRecord("5eed5eed", Kind.PROCESSES, "", "you", "/python", engine=("--depth", "2"))
    write_record(tmp_path, record)
    with pytest.raises(LabError, match="other arguments") as refused:
        Lab.at(tmp_path).up(kind=Kind.PROCESSES, engine=["--depth", "3"])
    assert "--depth 2" in refused.value.why


def test_a_lab_with_a_gpu_does_not_say_that_it_has_none(tmp_path):
    said = [LabStatus(tmp_path, Kind.PROCESSES, gpu=gpu).cannot_show for gpu in ("", "NVIDIA H200")]
    assert set(said[0]) - set(said[1]) == {"a GPU"}
