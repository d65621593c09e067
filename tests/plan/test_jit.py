"""Caches of compiled kernels: found in live processes, one for each arm that changes anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleetctl.plan.desired import FileGoal
from fleetctl.plan.jit import Cache, caches_in_use, caches_of
from fleetctl.spec.arms import Arm
from fleetctl.transaction.code import CodeReport, ProcessCode
from fleetctl.transaction.snapshot import PathState

PROCESS = ProcessCode(
    pid=7,
    interpreter="/opt/venv/bin/python",
    prefix="/opt/venv",
    version="3.11.2",
    directory="/srv",
    pycache_prefix="",
    main="payload.engine",
    started_s=1.0,
    modules=(),
    user="svc",
    login="svc",
    home="/home/svc",
)
CHANGES = (FileGoal("/srv/x.py", b"new", "patch x.py"),)
ARM = Arm("treatment", flags={"FLAG": "1"})


def in_use(*processes: ProcessCode) -> tuple[Cache, ...]:
    return caches_in_use(CodeReport("x.service", processes or (PROCESS,)))


def directories(*paths: str, owner: str = "svc", mode: int = 0o755) -> dict[str, PathState]:
    return {path: PathState(path, path, "directory", owner=owner, mode=mode) for path in paths}


TRITON = in_use(replace(PROCESS, libraries=("triton",)))
HOME = directories("/home/svc", "/home/svc/.triton", "/home/svc/.triton/cache")


def test_a_service_that_compiles_nothing_has_no_cache():
    assert in_use() == ()
    assert caches_of(ARM, CHANGES, (), {}).directories == {}


@pytest.mark.parametrize(
    ("library", "variable", "place"),
    [
        ("triton", "TRITON_CACHE_DIR", "/home/svc/.triton/cache"),
        ("torch", "TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor_svc"),
        ("deep_gemm", "DG_JIT_CACHE_DIR", "/home/svc/.deep_gemm"),
        ("vllm", "VLLM_CACHE_ROOT", "/home/svc/.cache/vllm"),
    ],
)
def test_a_loaded_library_has_its_default_directory(library, variable, place):
    (cache,) = in_use(PROCESS, replace(PROCESS, pid=8, libraries=(library,)))

    assert (cache.kind.variable, cache.directory) == (variable, place)


def test_what_the_service_runs_counts_as_loaded():
    found = in_use(replace(PROCESS, main="sglang.launch_server"))

    assert {cache.directory for cache in found} == {
        "/home/svc/.cache/sglang",
        "/home/svc/.cache/sglang/deep_gemm",
        "/home/svc/.cache/sglang/jit",
    }


def test_the_variable_of_a_live_process_decides():
    (cache,) = in_use(replace(PROCESS, variables=(("TRITON_CACHE_DIR", "/var/cache/t"),)))

    assert cache.directory == "/var/cache/t"


def test_an_arm_that_changes_anything_gets_a_directory_inside_the_one_there_is():
    found = caches_of(ARM, CHANGES, TRITON, HOME)

    (own,) = found.flags.values()
    assert own.startswith("/home/svc/.triton/cache/fleetctl-")
    assert own.endswith("-triton")
    assert found.lines() == [f"  compiled kernels: TRITON_CACHE_DIR {own}"]


def test_arms_of_other_bytes_never_share_and_arms_of_the_same_bytes_are_one():
    other = (replace(CHANGES[0], content=b"newer"),)
    mine = caches_of(ARM, CHANGES, TRITON, HOME).flags

    assert mine != caches_of(ARM, other, TRITON, HOME).flags
    assert mine == caches_of(replace(ARM, name="again"), CHANGES, TRITON, HOME).flags


def test_an_arm_that_changes_nothing_keeps_the_host_s_cache():
    found = caches_of(ARM, (), TRITON, HOME)

    assert found.flags == {}
    assert found.lines() == [
        "  compiled kernels: TRITON_CACHE_DIR /home/svc/.triton/cache, as found"
    ]


def test_arms_share_when_the_spec_says_so_and_why():
    found = caches_of(replace(ARM, jit_shared_because="no kernel differs"), CHANGES, TRITON, HOME)

    assert found.flags == {}
    assert "as found (no kernel differs)" in found.lines()[0]


def test_a_variable_that_the_arm_sets_is_left_to_it():
    mine = replace(ARM, flags={"TRITON_CACHE_DIR": "/mine"})

    assert caches_of(mine, CHANGES, TRITON, HOME).directories == {}


def test_a_cache_that_does_not_exist_yet_begins_in_what_is_above_it():
    (own,) = caches_of(ARM, CHANGES, TRITON, directories("/", "/home/svc")).flags.values()

    assert own.startswith("/home/svc/fleetctl-")


@pytest.mark.parametrize(
    ("seen", "is_own"),
    [
        (directories("/home/svc", owner="root"), False),
        (directories("/home/svc", owner="root", mode=0o1777), True),
        ({}, False),
    ],
)
def test_a_directory_that_the_service_may_not_write_to_is_not_given_to_it(seen, is_own):
    found = caches_of(ARM, CHANGES, TRITON, seen)

    assert bool(found.flags) is is_own
    assert is_own or "may write to no directory above it" in found.lines()[0]
