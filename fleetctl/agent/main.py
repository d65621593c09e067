"""The agent's command line: a verb and the state directory; the request comes on stdin.

Answers go to stdout in a frame. `expire`, `watch` and `recover` are called by the host itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from fleetctl.agent import holding, keeping
from fleetctl.agent.apply import ApplyRequest, apply
from fleetctl.agent.check import check
from fleetctl.agent.code import report_code
from fleetctl.agent.deadman import RETRY_S, Program
from fleetctl.agent.edges import Edges, open_edges
from fleetctl.agent.holding import Expiry
from fleetctl.agent.manner import OnConflict
from fleetctl.agent.observe import observe, unit_report
from fleetctl.agent.service_log import read_log
from fleetctl.agent.state import check_kinds
from fleetctl.agent.systemd import unit_pids
from fleetctl.agent.telemetry import sample
from fleetctl.agent.trouble import trouble
from fleetctl.errors import ExitCode, FleetError, InputError, InternalError
from fleetctl.transaction import frame, wire
from fleetctl.transaction.failure import encode_failure
from fleetctl.transaction.lease import IDENTIFIER, BadLease, LeaseRequest
from fleetctl.transaction.step import BadStep

WATCH_S = 1.0

Request = Mapping[str, Any]
Verb = Callable[[Edges, Request, Mapping[str, bytes]], object]


def _observe(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    return observe(edges, request["query"])


def _check(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    return check(edges, request["files"], request["interpreter"])


def _acquire(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    lease: LeaseRequest = request["lease"]
    with edges.state.locked(edges.clock, wait_s=keeping.LOCK_WAIT_S):
        return holding.acquire(edges, lease)[0]


def _apply(edges: Edges, request: Request, blobs: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    return apply(edges, ApplyRequest(contents=blobs, **request))


def _renew(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    return keeping.renew(edges, request["lease_id"], request["length_s"])


def _commit(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    return keeping.commit(edges, request["lease_id"], request["transaction"])


def _restore(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    return keeping.restore(
        edges,
        transaction=request["transaction"],
        run_id=request["run_id"],
        on_conflict=OnConflict(request["on_conflict"]),
        hold=request["hold"],
    )


def _release(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    return keeping.release(edges, request["lease_id"])


def _unlock(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    return keeping.unlock(edges, request["lease_id"])


def _unit(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    return unit_report(edges, request["unit"], request["flags"], request["log_lines"])


def _code(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    query = request["query"]
    return report_code(query, unit_pids(edges.systemctl.show(query.unit)))


def _log(edges: Edges, request: Request, _: Mapping[str, bytes]) -> object:
    return read_log(edges.systemctl, request["unit"], request["most_lines"])


def _telemetry(_: Edges, request: Request, __: Mapping[str, bytes]) -> object:
    return sample(request["since_s"])


def _status(edges: Edges, _: Request, __: Mapping[str, bytes]) -> object:
    return keeping.status(edges)


def _forget(edges: Edges, _: Request, __: Mapping[str, bytes]) -> object:
    edges.state.prepare()
    return keeping.forget(edges)


VERBS: Mapping[str, Verb] = {
    "observe": _observe,
    "check": _check,
    "acquire": _acquire,
    "apply": _apply,
    "renew": _renew,
    "commit": _commit,
    "restore": _restore,
    "release": _release,
    "unlock": _unlock,
    "unit": _unit,
    "code": _code,
    "log": _log,
    "telemetry": _telemetry,
    "status": _status,
    "forget": _forget,
}


def main() -> int:
    """Run one verb; see the module's docstring."""
    verb, state_path, *words = sys.argv[1:]
    program = Program(sys.executable, _zipapp(sys.argv[0]))
    edges = open_edges(state_path, program)
    if verb == "expire":
        return _expire(edges, words[0])
    if verb == "watch":
        return _watch(edges, words[0])
    if verb == "recover":
        return _recover(edges)
    return _answer(edges, verb)


def _zipapp(started_from: str) -> str:
    """Return the zipapp, also when its unpacked form beside it was started."""
    path = Path(started_from).resolve()
    return f"{path}.pyz" if path.is_dir() else str(path)


def _expire(edges: Edges, lease_id: str) -> int:
    edges.state.prepare()
    return 1 if holding.expire(edges, lease_id) is Expiry.UNRESTORED else 0


def _recover(edges: Edges) -> int:
    edges.state.prepare()
    result = holding.recover(edges)
    return 1 if result.problems else 0


def _watch(edges: Edges, lease_id: str) -> int:
    """Look at a lease until it expires or is lost, then restore; ends with the lease."""
    while True:
        remaining_s = _remaining_s(edges, lease_id)
        if remaining_s > 0:
            # in one go, it would outlive a lease whose record is damaged, and a machine's sleep
            edges.clock.sleep(min(remaining_s, WATCH_S))
            continue
        found = _try_to_expire(edges, lease_id)
        if found is Expiry.SETTLED:
            return 0
        if found is Expiry.UNRESTORED:
            edges.clock.sleep(RETRY_S)


def _remaining_s(edges: Edges, lease_id: str) -> float:
    """Never fail, either; of a lease that can't be read nothing remains."""
    try:
        record = edges.leases.get(lease_id)
        return edges.leases.remaining_s(record) if record else 0.0
    except Exception:  # noqa: BLE001 - to expire is then tried, again and again
        return 0.0


def _try_to_expire(edges: Edges, lease_id: str) -> Expiry:
    """Never fail: nobody would start a watcher again."""
    if not edges.state.exists:
        edges.claims.drop(lease_id)
        return Expiry.SETTLED
    try:
        return holding.expire(edges, lease_id)
    except Exception:  # noqa: BLE001 - a dead-man that dies of a full disk is none
        return Expiry.UNRESTORED


def _answer(edges: Edges, verb: str) -> int:
    message = frame.unpack("request", sys.stdin.buffer.read())
    answered: dict[str, bytes] = {}
    try:
        request = {name: wire.decode(v, message.blobs) for name, v in message.header.items()}
        _check_names(request)
        check_kinds(edges.state)
        value = VERBS[verb](edges, request, message.blobs)
        header: dict[str, Any] = {"answer": wire.encode(value, answered)}
        code = ExitCode.OK
    except FleetError as error:
        header, code = {"failure": encode_failure(error, answered)}, error.exit_code
    except (BadLease, BadStep, wire.WireError) as error:
        refused = InputError(f"`{verb}` was refused", why=str(error), next_step="nothing was done")
        header, code = {"failure": encode_failure(refused, answered)}, refused.exit_code
    except Exception as error:  # noqa: BLE001 - whatever happens, the controller is told in a frame
        failure = trouble(verb, error) or _bug(verb)
        header, code = {"failure": encode_failure(failure, answered)}, failure.exit_code
    _write(frame.pack("response", message.nonce, header, answered))
    return int(code)


def _check_names(request: Request) -> None:
    """Refuse names that could be paths."""
    for field in ("transaction", "lease_id"):
        name = request.get(field, "")
        if name and not IDENTIFIER.fullmatch(name):
            raise InputError(
                f"not an identifier: {name!r}", why="", next_step="look at the spelling"
            )


def _bug(verb: str) -> FleetError:
    import traceback  # noqa: PLC0415 - slow to load, and needed for bugs only

    return InternalError(
        f"the agent failed in `{verb}`",
        why=traceback.format_exc(limit=-4).strip(),
        next_step="this is a bug in fleetctl; a change that had begun is undone by the dead-man",
    )


def _write(data: bytes) -> None:
    """Write the answer; nobody may be there any more to read it."""
    try:
        view: Sequence[int] = memoryview(data)
        while view:
            view = view[os.write(1, bytes(view[:65536])) :]
    except BrokenPipeError:
        return
