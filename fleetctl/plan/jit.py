"""Caches of compiled kernels: which a service uses, and one for each arm.

A kernel that one arm compiled and the other loads would make them equal where they are said to
differ. So every arm that changes anything gets directories of its own, by the same exact edit of
the environment as any flag; an arm that is the host as found goes on with the host's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fleetctl.plan.desired import FileGoal
from fleetctl.spec.arms import Arm
from fleetctl.transaction.code import CodeReport, ProcessCode
from fleetctl.transaction.snapshot import PathState

_DIGITS = 10
_STICKY_FOR_ALL = 0o1777


@dataclass(frozen=True)
class CacheKind:
    """A cache that some library keeps.

    Attributes:
        variable: that says where.
        libraries: packages of which one has to be loaded for the cache to be used.
        name: for the name of an arm's directory.
        default: where it is otherwise; `{home}`, `{user}` and `{temp}` are the service's.
    """

    variable: str
    libraries: tuple[str, ...]
    name: str
    default: str


KINDS = (
    CacheKind("TRITON_CACHE_DIR", ("triton",), "triton", "{home}/.triton/cache"),
    CacheKind("TORCHINDUCTOR_CACHE_DIR", ("torch",), "inductor", "{temp}/torchinductor_{user}"),
    CacheKind("DG_JIT_CACHE_DIR", ("deep_gemm",), "deep_gemm", "{home}/.deep_gemm"),
    CacheKind("SGLANG_CACHE_DIR", ("sglang", "sgl_kernel"), "sglang", "{home}/.cache/sglang"),
    CacheKind(
        "SGLANG_DG_CACHE_DIR",
        ("sglang", "sgl_kernel"),
        "sglang_dg",
        "{home}/.cache/sglang/deep_gemm",
    ),
    CacheKind(
        "SGLANG_JIT_CACHE_DIR", ("sglang", "sgl_kernel"), "sglang_jit", "{home}/.cache/sglang/jit"
    ),
    CacheKind("VLLM_CACHE_ROOT", ("vllm",), "vllm", "{home}/.cache/vllm"),
    CacheKind("TILELANG_CACHE_DIR", ("tilelang",), "tilelang", "{home}/.tilelang/cache"),
    CacheKind("FLASHINFER_WORKSPACE_BASE", ("flashinfer",), "flashinfer", "{home}"),
)
VARIABLES = tuple(kind.variable for kind in KINDS)
LIBRARIES = tuple(dict.fromkeys(library for kind in KINDS for library in kind.libraries))


@dataclass(frozen=True)
class Cache:
    """A cache that a service uses.

    Attributes:
        kind: which.
        directory: where, as found.
        owner: the user whose processes write it.
    """

    kind: CacheKind
    directory: str
    owner: str


@dataclass(frozen=True)
class ArmCaches:
    """Where one arm's service keeps its compiled kernels.

    Attributes:
        flags: variable -> directory of its own, by edit of the environment.
        as_found: variable -> directory that it uses as the host does.
        why_shared: why it has none of its own; empty where it has.
    """

    flags: Mapping[str, str]
    as_found: Mapping[str, str]
    why_shared: str = ""

    @property
    def directories(self) -> dict[str, str]:
        """Variable -> directory that the arm really uses."""
        return {**self.as_found, **self.flags}

    def lines(self) -> list[str]:
        """Return what a plan says of them."""
        why = f" ({self.why_shared})" if self.why_shared else ""
        return [
            f"  compiled kernels: {variable} {directory}"
            + ("" if variable in self.flags else f", as found{why}")
            for variable, directory in self.directories.items()
        ]


NO_CACHES = ArmCaches({}, {})


def caches_in_use(code: CodeReport) -> tuple[Cache, ...]:
    """Return the caches whose variable a live process has, or whose library it has loaded."""
    found = []
    for kind in KINDS:
        users = [process for process in code.processes if _uses(process, kind)]
        if users:
            found.append(Cache(kind, _directory(kind, users[0]), users[0].user))
    return tuple(found)


def _uses(process: ProcessCode, kind: CacheKind) -> bool:
    top = process.main.partition(".")[0]
    return kind.variable in dict(process.variables) or not {top, *process.libraries}.isdisjoint(
        kind.libraries
    )


def _directory(kind: CacheKind, process: ProcessCode) -> str:
    said = dict(process.variables).get(kind.variable)
    default = kind.default.format(home=process.home, user=process.login, temp=process.temp)
    return said if said and said.startswith("/") else default


def caches_of(
    arm: Arm, changes: Iterable[FileGoal], caches: Iterable[Cache], seen: Mapping[str, PathState]
) -> ArmCaches:
    """Return where an arm keeps its compiled kernels.

    Args:
        arm: an arm; flags that it sets itself are left to it.
        changes: files that it really changes on the host; without any it is the host as found.
        caches: in use on the host.
        seen: their directories and those above them, as found.
    """
    found = [cache for cache in caches if cache.kind.variable not in arm.flags]
    places = {cache.kind.variable: cache.directory for cache in found}
    token = _token(changes)
    if not token or arm.jit_shared_because:
        return ArmCaches({}, places, arm.jit_shared_because)
    own = {
        cache.kind.variable: f"{base}/fleetctl-{token}-{cache.kind.name}"
        for cache in found
        if (base := _base(cache, seen))
    }
    rest = {variable: place for variable, place in places.items() if variable not in own}
    why = "its user may write to no directory above it" if rest else ""
    return ArmCaches(own, rest, why)


def _token(changes: Iterable[FileGoal]) -> str:
    """Return what an arm's directories are named by: its bytes on the host, so equal arms are one.

    Empty where there are no changes.
    """
    said = sorted((goal.path.encode(), goal.content or b"") for goal in changes)
    if not said:
        return ""
    total = hashlib.sha256()
    for path, content in said:
        total.update(b"%b\0%d\0%b" % (path, len(content), content))
    return total.hexdigest()[:_DIGITS]


def _base(cache: Cache, seen: Mapping[str, PathState]) -> str:
    """Return the innermost directory there is, if the service may write into it; else ""."""
    path = PurePosixPath(cache.directory)
    for place in (path, *path.parents):
        state = seen.get(str(place))
        if state is not None and state.kind == "directory":
            may = cache.owner in ("root", state.owner)
            open_to_all = (state.mode or 0) & _STICKY_FOR_ALL == _STICKY_FOR_ALL
            return str(place) if may or open_to_all else ""
    return ""
