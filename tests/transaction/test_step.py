"""Steps refuse nonsense, know their undo, and say what they do in one line."""

from __future__ import annotations

import pytest

from fleetctl.transaction.image import (
    ABSENT,
    DirectoryBefore,
    FileBefore,
    FileImage,
    NothingBefore,
    UnitBefore,
)
from fleetctl.transaction.step import (
    BadStep,
    MakeDirectory,
    ReloadUnits,
    RemoveDirectory,
    RemoveFile,
    RestartUnit,
    RestoreFile,
    RestoreUnit,
    WriteFile,
    describe,
    undo,
)

OLD, NEW = "a" * 64, "b" * 64
IMAGE = FileImage(OLD, 3, 0o640, 0, 0, 1)
BEFORE = FileBefore("/t/a", "/t/a", IMAGE, ".fleetctl-x", 7)
UNIT_BEFORE = UnitBefore(True, "active/running", "enabled", "i1")


@pytest.mark.parametrize(
    "path", ["relative", "/a/../b", "/a//b", "/a/./b", "/a\0b", "/", "/a/", "", "~/a"]
)
def test_a_path_that_could_lead_elsewhere_is_no_step(path):
    with pytest.raises(BadStep):
        WriteFile(path, NEW, None, OLD)
    with pytest.raises(BadStep):
        RemoveFile(path, OLD)
    with pytest.raises(BadStep):
        MakeDirectory(path)


@pytest.mark.parametrize("unit", ["x", "-x.service", "a b.service", "x.service;id", "../x.service"])
def test_what_is_no_full_unit_name_cannot_be_restarted(unit):
    with pytest.raises(BadStep):
        RestartUnit(unit)


IMPOSSIBLE = {
    "digest": lambda: WriteFile("/a", "no digest", None, OLD),
    "upper case": lambda: WriteFile("/a", NEW.upper(), None, OLD),
    "mode": lambda: WriteFile("/a", NEW, 0o10000, OLD),
    "expectation": lambda: WriteFile("/a", NEW, None, "short"),
    "soak": lambda: RestartUnit("x.service", soak_s=-1),
    "no time to stop": lambda: RestartUnit("x.service", stop_deadline_s=0),
    "endless stop": lambda: RestartUnit("x.service", stop_deadline_s=float("inf")),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_values_are_refused_when_the_step_is_made(name):
    with pytest.raises(BadStep):
        IMPOSSIBLE[name]()


@pytest.mark.parametrize(
    ("step", "before", "undos"),
    [
        (WriteFile("/t/a", NEW, None, OLD), BEFORE, (RestoreFile(BEFORE, NEW),)),
        (RemoveFile("/t/a", OLD), BEFORE, (RestoreFile(BEFORE, ABSENT),)),
        (MakeDirectory("/t/d"), DirectoryBefore("/t/d", False), (RemoveDirectory("/t/d"),)),
        (MakeDirectory("/t/d"), DirectoryBefore("/t/d", True), ()),
        (ReloadUnits(), NothingBefore(), (ReloadUnits(),)),
        (
            RestartUnit("x.service"),
            UNIT_BEFORE,
            (RestoreUnit(RestartUnit("x.service"), UNIT_BEFORE),),
        ),
    ],
)
def test_each_kind_knows_what_brings_back_what_it_found(step, before, undos):
    assert undo(step, before) == undos


def test_a_before_image_of_another_kind_is_refused():
    with pytest.raises(BadStep):
        undo(ReloadUnits(), UNIT_BEFORE)


def test_each_kind_describes_itself_in_one_line():
    steps = [
        WriteFile("/t/a", NEW, None, OLD),
        WriteFile("/t/b", NEW, None, ABSENT),
        RemoveFile("/t/c", OLD),
        MakeDirectory("/t/d"),
        ReloadUnits(),
        RestartUnit("x.service"),
    ]

    assert [describe(step) for step in steps] == [
        "replace /t/a",
        "create /t/b",
        "remove /t/c",
        "make directory /t/d",
        "reload systemd's unit files",
        "restart x.service",
    ]
