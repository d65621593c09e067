"""A host of the lab with its agent, as tests of transactions use it."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fleetctl.clock import SystemClock
from fleetctl.host.agent_client import Agent, new_id
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.lab import Lab
from fleetctl.transaction.lease import LeaseRequest
from fleetctl.transaction.snapshot import PathQuery, Query
from fleetctl.transaction.step import ReloadUnits, RestartUnit, Step, WriteFile

UNIT = "sglang-dsv4-decode.service"
LEASE_S = 3.0
BUSY_S = 30.0  # the campaign measures that a host is back within 5 s; a busy machine takes longer


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class Host:
    """A lab host and its agent, over a connection of its own."""

    lab: Lab
    name: str
    agent: Agent

    @property
    def tree(self) -> str:
        return self.lab.host(self.name).tree

    @property
    def script(self) -> str:
        return self.lab.host(self.name).serve_script

    @property
    def module(self) -> str:
        return f"{self.tree}/python/serve/dsv4/indexer.py"

    def read(self, path: str) -> bytes:
        return self.agent.transport.get(path)

    def shell(self, text: str) -> str:
        done = self.agent.transport.run(["sh", "-c", text], deadline_s=30)
        return done.stdout.decode()

    def write(self, path: str, content: bytes) -> tuple[Step, dict[str, bytes]]:
        step = WriteFile(path, sha256(content), None, sha256(self.read(path)))
        return step, {sha256(content): content}

    def lease(self, length_s: float = 60.0) -> LeaseRequest:
        return LeaseRequest(new_id(), "run-1", "ann@desk", "hunting", UNIT, length_s)

    def change_module(
        self, *, length_s: float = 60.0, transaction: str = "", lease: LeaseRequest | None = None
    ) -> str:
        """Deploy a changed module and restart the unit; return the transaction."""
        step, contents = self.write(self.module, self.read(self.module) + b"\n# changed\n")
        name = transaction or new_id()
        restart = RestartUnit(UNIT, 0.3, 20)
        held = lease or self.lease(length_s)
        self.agent.apply(held, name, [step, ReloadUnits(), restart], contents)
        return name

    def change_module_and_vanish(self) -> str:
        """Deploy as a controller that renews its lease, and is gone afterwards."""
        with self.renewed_lease() as lease:
            return self.change_module(lease=lease)

    @contextlib.contextmanager
    def renewed_lease(self) -> Iterator[LeaseRequest]:
        """Hold a short lease that is renewed as long as the block lasts."""
        lease, is_over = self.lease(LEASE_S), threading.Event()
        self.agent.acquire(lease)

        def renew() -> None:
            while not is_over.wait(LEASE_S / 8):
                self.agent.renew(lease.id, length_s=LEASE_S)

        with ThreadPoolExecutor(1) as pool:
            renewing = pool.submit(renew)
            try:
                yield lease
            finally:
                is_over.set()
                renewing.result()

    def look(self) -> dict[str, object]:
        """Return what must be as before: files, and how the unit is."""
        queries = tuple(PathQuery(path) for path in (self.module, self.script))
        observed = self.agent.observe(Query(queries, (UNIT,)))
        properties = observed.units[0].properties
        unit = {name: properties.get(name) for name in ("ActiveState", "SubState", "UnitFileState")}
        return {"files": observed.paths, "unit": unit}

    def wait(self, before: dict[str, object], *, within_s: float) -> None:
        deadline_s = time.monotonic() + within_s
        while time.monotonic() < deadline_s and (self.look() != before or self.held()):
            time.sleep(0.1)
        assert self.look() == before
        assert not self.held()

    def held(self) -> bool:
        status = self.agent.status()
        return bool(status.leases or status.transactions)


def connect_host(lab: Lab, name: str) -> Host:
    record = lab.host(name)
    endpoint = Endpoint(
        name=name,
        address=record.address,
        user=lab_user(lab),
        port=record.port,
        identity_files=(lab.paths.identity,),
        known_hosts_files=(lab.paths.known_hosts,),
    )
    transport = connect(
        endpoint, backend=Backend.PARAMIKO, gate=HandshakeGate(), clock=SystemClock()
    )
    return Host(lab, name, Agent(transport))


def lab_user(lab: Lab) -> str:
    with lab.paths.inventory.open("rb") as file:
        return str(tomllib.load(file)["defaults"]["user"])
