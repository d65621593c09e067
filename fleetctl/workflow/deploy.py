"""Put an arm on a site, wait until it serves, prove that it is what was asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fleetctl.errors import ApplyFailed
from fleetctl.plan.patches import files_by_path, module_paths, modules_of
from fleetctl.plan.planner import Plan, sha256
from fleetctl.report.numbers import count
from fleetctl.serving.loads import fetch_json
from fleetctl.serving.proof import (
    ExpectedModule,
    Proof,
    flags_seen,
    prove_code,
    prove_flags,
    prove_markers,
    prove_own_view,
    require,
)
from fleetctl.spec.arms import Arm, PatchContent
from fleetctl.spec.ready import Ready
from fleetctl.transaction.code import CodeReport
from fleetctl.transaction.snapshot import Process, UnitReport
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.lease_keeper import LeaseKeeper
from fleetctl.workflow.observe import code_query
from fleetctl.workflow.ready import wait_ready
from fleetctl.workflow.site import Site, address_of

_LOG_LINES = 4000
_SHOWN_LOG_LINES = 12


@dataclass(frozen=True)
class Prepared:
    """A host with the plan of each arm, made from the host as found.

    Attributes:
        plans: by arm name.
        arms: by name; their union decides which flags and files are read back.
        wanted: by arm name: sha256 of every file any arm touches, as that arm has it.
        within: directories that no step may leave.
        own_flags: by arm name: variables of its own caches, which count as no difference.
        flags: further ones that are read back, because arms to come may set them.
    """

    host: Reached
    keeper: LeaseKeeper
    plans: Mapping[str, Plan]
    arms: Mapping[str, Arm]
    wanted: Mapping[str, Mapping[str, str]]
    within: tuple[str, ...]
    own_flags: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deployed:
    """An arm that runs on a site, as read back from it.

    Attributes:
        boot: host boots and unit invocations, joined: what tells one cluster from the next.
        patches: module or path that a patch names -> sha256 that is live, over both arms' patches.
        processes: flags that matter, of every serving process.
    """

    arm: str
    boot: str
    patches: Mapping[str, str]
    processes: tuple[Mapping[str, str], ...]
    proof: Proof


def deploy(
    edges: Edges, site: Site, prepared: Sequence[Prepared], arm: str, ready: Ready
) -> Deployed:
    """Put an arm on every host of a site, in restart order, and prove it.

    Hosts that hold another arm go back to as found first. A failure leaves the hosts to their
    keepers, which restore them.

    Raises:
        ApplyFailed: a step failed; that host was restored.
        NotReady: the service did not become ready.
        NotProven: what runs is not what was asked for.
        DriftError: somebody changed the host meanwhile.
    """
    edges.talk.say(f"{site.name}: deploying {arm}")
    for one in prepared:
        edges.stop.check()
        one.keeper.check()
        _switch(one, arm)
    wait_ready(edges, site, ready)
    return _proven(edges, site, prepared, arm)


def _switch(one: Prepared, arm: str) -> None:
    try:
        one.keeper.switch(one.plans[arm], within=one.within)
    except ApplyFailed as error:
        lines: Sequence[str] = getattr(error, "log_lines", ())
        error.what = f"{one.host.name}: {error.what}"
        error.why += "".join(f"\n       | {line}" for line in lines[-_SHOWN_LOG_LINES:])
        raise


def _proven(edges: Edges, site: Site, prepared: Sequence[Prepared], arm: str) -> Deployed:
    proof = Proof()
    patches: dict[str, str] = {}
    processes: list[Mapping[str, str]] = []
    boots: list[str] = []
    seen: list[str] = []
    for one in prepared:
        read = _read_back(one)
        found = _prove(one, read, arm)
        require(found, one.host.name)
        proof += found
        patches |= _live_patches(one, read.code)
        processes += [_declared(one, process) for process in read.unit.processes]
        boots.append(read.unit.invocation)
        where = f" of {one.host.name}" if len(prepared) > 1 else ""
        seen += [f"{line}{where}" for line in flags_seen(read.unit, _named(one))]
    edges.talk.say(f"{site.name}: {proven_line(arm, proof, seen)}")
    return Deployed(arm, "+".join(boots), patches, tuple(processes), proof)


def _declared(one: Prepared, process: Process) -> Mapping[str, str]:
    """Return the flags of a process that some arm names, or may name."""
    named = _named(one)
    return {name: value for name, value in process.flags if name in named}


def _named(one: Prepared) -> tuple[str, ...]:
    """Return the flags that some arm names, or may name."""
    named = (name for arm in one.arms.values() for name in arm.flags)
    return tuple(dict.fromkeys((*named, *one.flags)))


def proven_line(arm: str, proof: Proof, seen: Sequence[str]) -> str:
    """Return what a run says of an arm that runs as it should.

    Args:
        arm: its name.
        proof: which holds; empty for an arm that asks for nothing, as the host as found does.
        seen: flags that other arms name, as they run.
    """
    if proof.shown:
        return f"proven: {count(len(proof.shown), 'fact')} about what runs"
    looked_at = f"; looked at: {'; '.join(seen)}" if seen else ""
    return f"{arm} is as found: no file or flag was changed, so nothing had to be proven{looked_at}"


@dataclass(frozen=True)
class _ReadBack:
    unit: UnitReport
    code: CodeReport
    log: tuple[tuple[int, str], ...]
    own_view: Mapping[str, object]


def _read_back(one: Prepared) -> _ReadBack:
    host = one.host
    arms = tuple(one.arms.values())
    names = {*_named(one), *(name for own in one.own_flags.values() for name in own)}
    markers = any(content.patch.marker for arm in arms for content in arm.patches)
    log = host.agent.log(host.host.unit, most_lines=_LOG_LINES).lines if markers else ()
    return _ReadBack(
        unit=host.agent.unit(host.host.unit, flags=sorted(names), log_lines=0),
        code=host.agent.code(code_query(host, arms)),
        log=tuple((line.pid, line.text) for line in log),
        own_view=_own_view(host),
    )


def _own_view(host: Reached) -> Mapping[str, object]:
    """Return the environment that a server says it has read, where it says so."""
    address, port = address_of(host.host.service_url)
    with host.transport.forward(port, address=address) as local:
        info = fetch_json(local, "/server_info")
    flags = info.get("flags") or info.get("env") if isinstance(info, dict) else None
    return flags if isinstance(flags, dict) else {}


def _prove(one: Prepared, read: _ReadBack, arm: str) -> Proof:
    wanted = one.arms[arm]
    flags = {**wanted.flags, **one.own_flags.get(arm, {})}
    pids = [process.pid for process in read.code.processes if process.pid]
    markers = [content.patch.marker for content in wanted.patches if content.patch.marker]
    return (
        prove_flags(read.unit, flags)
        + prove_own_view(flags, read.own_view)
        + prove_code(read.code, _expected(one, read.code, arm))
        + prove_markers(read.log, markers, pids)
    )


def _expected(one: Prepared, code: CodeReport, arm: str) -> list[ExpectedModule]:
    """Return every module that any arm patches, as this arm has it: patched or as found."""
    wanted = one.wanted[arm]
    paths = [module_paths(one.host.name, one.host.host, content, code) for content in _patches(one)]
    found = {module: path for named in paths for module, path in named.items()}
    found |= {path: path for each in _patches(one) for path in files_by_path(one.host.host, each)}
    return [ExpectedModule(module, path, wanted.get(path)) for module, path in found.items()]


def _patches(one: Prepared) -> list[PatchContent]:
    return [content for arm in one.arms.values() for content in arm.patches]


def _live_patches(one: Prepared, code: CodeReport) -> Mapping[str, str]:
    """Return the digest of what the processes would run, by the target that a patch names."""
    named: dict[str, set[str]] = {}
    for content in _patches(one):
        modules = {*modules_of(content).values(), *files_by_path(one.host.host, content)}
        named.setdefault(content.patch.target, set()).update(modules)
    return {name: live_digest(code, modules) for name, modules in named.items()}


def live_digest(code: CodeReport, modules: Collection[str]) -> str:
    """Return the sha256 of a module's source, or one over the sources of several.

    What has no source counts by its kind, such as `missing`.
    """
    live = sorted(
        {
            (found.module, found.sha256 or found.kind)
            for process in code.processes
            for found in process.modules
            if found.module in modules
        }
    )
    if len(live) == 1:
        return live[0][1]
    return sha256("".join(f"{module} {digest}\n" for module, digest in live).encode())
