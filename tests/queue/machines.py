"""Workers as machines of their own: processes that know nothing but the address of the queue."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Self

from fleetctl.clock import SystemClock
from fleetctl.queue.address import parse_address
from fleetctl.queue.opening import Joined, joined
from fleetctl.queue.roll import declare_lost
from fleetctl.store.campaign import ANYWHERE, CampaignState, CellResult, CellRun, Place

_context = multiprocessing.get_context("spawn")
NEVER_S = 3600.0


class Machine:
    """One worker's process; `queue` speaks to a campaign through it."""

    def __init__(self, url: str, name: str, lost_after_s: float) -> None:
        self.name = name
        self._ours, theirs = _context.Pipe()
        self.process: BaseProcess = _context.Process(
            target=_serve, args=(url, name, lost_after_s, theirs), daemon=True
        )
        self.process.start()
        theirs.close()
        self._lock = threading.Lock()

    def call(self, campaign: str, method: str, *args: Any, **named: Any) -> Any:
        with self._lock:
            self._ours.send((campaign, method, args, named))
            assert self._ours.poll(120), f"{self.name} does not answer to {method}"
            answer = self._ours.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def wait_ready(self) -> None:
        """Wait until it has joined the queue."""
        with self._lock:
            assert self._ours.poll(120), f"{self.name} did not join"
            self.id = self._ours.recv()

    def queue(self, campaign: str) -> MachineQueue:
        return MachineQueue(self, campaign)

    def kill(self) -> None:
        """Kill -9: it says good-bye to nobody."""
        os.kill(self.process.pid or 0, signal.SIGKILL)
        self.process.join()

    def freeze(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.process.pid or 0, signal.SIGCONT)

    def close(self) -> None:
        self._ours.close()
        self.process.kill()
        self.process.join()


@dataclass(frozen=True)
class MachineQueue:
    """A `CellQueue` whose every word is said by another process."""

    machine: Machine
    campaign: str

    def put(self, runs: Iterable[CellRun]) -> None:
        self._call("put", tuple(runs))

    def take(
        self, site: str, *, block: str, worker: str, prefers: str = "", place: Place = ANYWHERE
    ) -> CellRun | None:
        wish = {"block": block, "worker": worker, "prefers": prefers, "place": place}
        return self._call("take", site, **wish)

    def done(self, run: CellRun, result: CellResult) -> bool:
        return self._call("done", run, result)

    def failed(self, run: CellRun, why: str) -> bool:
        return self._call("failed", run, why)

    def give_back(self, run: CellRun, why: str, *, fault: bool) -> bool:
        return self._call("give_back", run, why, fault=fault)

    def quarantine(self, site: str, why: str) -> None:
        self._call("quarantine", site, why)

    def state(self) -> CampaignState:
        return self._call("state")

    def results(self) -> tuple[CellResult, ...]:
        return self._call("results")

    def begin_again(self, wanted: Iterable[str]) -> None:
        self._call("begin_again", list(wanted))

    def _call(self, method: str, *args: Any, **named: Any) -> Any:
        return self.machine.call(self.campaign, method, *args, **named)


@dataclass
class Machines:
    """Machines on one queue, started when they are first wanted and kept for later tests."""

    url: str
    lost_after_s: float = NEVER_S
    idle: list[Machine] = field(default_factory=list)
    busy: dict[str, Machine] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for machine in [*self.idle, *self.busy.values()]:
            machine.close()

    def start(self, *names: str) -> list[Machine]:
        """Return machines by their names, new ones started at once."""
        for name in names:
            if name not in self.busy and self.idle:
                self.busy[name] = self.idle.pop()
        new = [name for name in names if name not in self.busy]
        for name in new:
            self.busy[name] = Machine(self.url, name, self.lost_after_s)
        for name in new:
            self.busy[name].wait_ready()
        return [self.busy[name] for name in names]

    def release(self) -> None:
        """Keep the machines that live for the next test, which finds nothing in their hands."""
        for machine in self.busy.values():
            if machine.process.is_alive():
                machine.thaw()
                machine.call("", "declare_lost", machine.id)
                self.idle.append(machine)
        self.busy.clear()


@dataclass
class ManyMachines:
    """A campaign for the contract: each worker that opens it is another machine."""

    machines: Machines
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    def open(self, worker: str) -> MachineQueue:
        return self.machines.start(worker)[0].queue(self.name)

    def bury(self, worker: str) -> None:
        dead = self.machines.busy.pop(worker)
        dead.kill()
        (other,) = self.machines.start("undertaker")
        other.call("", "declare_lost", dead.id)


def _serve(url: str, name: str, lost_after_s: float, pipe: Connection) -> None:
    address = parse_address(url)
    with joined(address, name, SystemClock(), lost_after_s=lost_after_s, poll_s=0.05) as here:
        pipe.send(here.engine.worker)
        while True:
            try:
                campaign, method, args, named = pipe.recv()
            except EOFError:
                return
            pipe.send(_answer(here, campaign, method, args, named))


def _answer(here: Joined, campaign: str, method: str, args: Any, named: Any) -> Any:
    try:
        if method == "declare_lost":
            return declare_lost(here.database, args[0], "buried")
        return getattr(here.campaign(campaign), method)(*args, **named)
    except Exception as error:  # noqa: BLE001 - it is raised again on the other side
        return error
