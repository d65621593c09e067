"""Builds planned one by one on a host that changes meanwhile: what was found is what counts."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import DriftError
from fleetctl.plan.planner import sha256
from fleetctl.spec.arms import Arm
from fleetctl.spec.ready import Ready
from fleetctl.transaction.code import CodeReport
from fleetctl.transaction.snapshot import PathState
from fleetctl.workflow.bisect_ground import Build, HostGround
from fleetctl.workflow.bisect_series import removal, whole_file
from fleetctl.workflow.observe import HostView
from fleetctl.workflow.prepare import HostPlan


class Disk:
    """A host's agent over a few files in memory; it refuses files that hold `BAD`."""

    def __init__(self, **files: bytes) -> None:
        self.files = {f"/tree/{name}": content for name, content in files.items()}

    def code(self, _query):
        return CodeReport("u.service", ())

    def observe(self, query):
        return SimpleNamespace(paths=tuple(self._state(asked.path) for asked in query.paths))

    def check(self, staged, *, interpreter):
        bad = [f for f in staged if b"BAD" in f.content]
        return [
            SimpleNamespace(fatal=True, path=f.path, checked_by=interpreter, message="no")
            for f in bad
        ]

    def _state(self, path):
        if path in self.files:
            content = self.files[path]
            return PathState(path, path, "file", content=content, sha256=sha256(content))
        is_directory = any(name.startswith(f"{path}/") for name in self.files)
        return PathState(path, path, "directory" if is_directory else "absent")


@pytest.fixture
def ground():
    def start(disk):
        host = SimpleNamespace(
            unit="u.service", tree="/tree", python="/py", serve_scripts=(), service_url=""
        )
        reached = SimpleNamespace(name="a", host=host, agent=disk)
        view = HostView(SimpleNamespace(units=()), disk.code(None), {})
        plan = HostPlan(reached, view, {}, {}, {}, {})
        return HostGround(plan, Ready(gpu_idle_mib=512), SimpleNamespace(), (), {})

    return start


def build(name, *patches, absent=()):
    return Build(Arm(name, patches), absent)


def steps(plan, name):
    return [type(step).__name__ for step in plan.plans[name].steps]


def test_a_build_planned_while_another_stands_starts_from_what_was_found(ground):
    disk = Disk(m=b"found")
    host = ground(disk)
    host.with_build(build("one", whole_file("m", b"one", "x")), ())
    disk.files["/tree/m"] = b"one"  # the first build stands

    plan = host.with_build(build("two", whole_file("m", b"two", "x")), ())

    (change,) = plan.plans["two"].changes
    assert (change.before, change.after) == (b"found", b"two")
    assert plan.touched["/tree/m"].content == b"found"


def test_every_build_proves_the_files_of_all_others_as_found(ground):
    disk = Disk(m=b"m", n=b"n")
    host = ground(disk)
    host.with_build(build("one", whole_file("m", b"one", "x")), ())

    plan = host.with_build(build("two", whole_file("n", b"two", "x")), ())

    assert {name: sorted(wanted) for name, wanted in plan.wanted.items()} == {
        "one": ["/tree/m", "/tree/n"],
        "two": ["/tree/m", "/tree/n"],
    }
    assert plan.wanted["one"]["/tree/n"] != plan.wanted["two"]["/tree/n"]


def test_a_build_as_found_still_restarts_the_service(ground):
    plan = ground(Disk(m=b"m")).with_build(build("none"), ())

    assert steps(plan, "none") == ["RestartUnit"]


def test_a_search_waits_for_the_memory_of_gpus_as_any_run_does(ground):
    plan = ground(Disk(m=b"m")).with_build(build("one", whole_file("m", b"1", "x")), ())

    assert plan.plans["one"].steps[-1].gpu_idle_mib == 512


def test_a_file_that_only_one_build_makes_is_gone_in_all_others(ground):
    disk = Disk(m=b"m")
    host = ground(disk)
    host.with_build(build("one", whole_file("new", b"1", "x")), ())
    disk.files["/tree/new"] = b"1"

    plan = host.with_build(build("two", whole_file("m", b"2", "x")), ())

    assert steps(plan, "two") == ["WriteFile", "RestartUnit"]
    assert "/tree/new" not in plan.wanted["two"]
    assert "/tree/new" in plan.wanted["one"]


def test_a_directory_that_an_earlier_build_made_is_made_again_by_a_later_one(ground):
    disk = Disk(m=b"m")
    host = ground(disk)
    host.with_build(build("one", whole_file("new/a", b"1", "x")), ())
    disk.files["/tree/new/a"] = b"1"

    plan = host.with_build(build("two", whole_file("new/b", b"2", "x")), ())

    assert steps(plan, "two") == ["MakeDirectory", "WriteFile", "RestartUnit"]


def test_a_removal_is_planned_for_exactly_the_file_that_was_found(ground):
    plan = ground(Disk(m=b"m\n")).with_build(build("gone", removal("m", b"m\n", "x")), ())
    assert steps(plan, "gone") == ["RemoveFile", "RestartUnit"]

    with pytest.raises(DriftError, match="another version"):
        ground(Disk(m=b"other\n")).with_build(build("gone", removal("m", b"m\n", "x")), ())


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (build("b", whole_file("m", b"BAD", "x")), "refuses /tree/m"),
        (build("b", whole_file("m", b"1", "x"), whole_file("m", b"2", "y")), "twice"),
        (build("b", whole_file("m", b"1", "x"), absent=("m",)), "would overwrite /tree/m"),
    ],
    ids=["refused", "twice", "untracked"],
)
def test_what_can_not_be_built_is_said_before_anything_is_changed(ground, made, says):
    with pytest.raises(DriftError, match=says):
        ground(Disk(m=b"m")).with_build(made, ())


def test_goals_keep_only_what_differs(ground):
    host = ground(Disk(m=b"m"))

    host.with_build(build("same", whole_file("m", b"m", "x")), ())

    assert host.goals == {"same": ()}
