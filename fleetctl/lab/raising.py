"""How a lab comes up: what is missing is made, what is down is started, until all answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleetctl.clock import Clock
from fleetctl.errors import LabError
from fleetctl.lab.backend import HostBackend
from fleetctl.lab.knock import wait_for_answer
from fleetctl.lab.paths import LabPaths
from fleetctl.lab.record import (
    MAX_HOSTS,
    HostRecord,
    HostState,
    LabRecord,
    Phase,
    Wanted,
    write_record,
)

# a host that can't come up stops, and that is noticed at once; this is for machines under load
ANSWER_DEADLINE_S = 120.0
HOSTS_AT_ONCE = 4


@dataclass
class RecordKeeper:
    """The record of a lab while several hosts change at once; on disk before each act."""

    paths: LabPaths
    record: LabRecord
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, host: HostRecord) -> HostRecord:
        """Write one host's new record and return it."""
        with self._lock:
            self.record = self.record.with_host(host)
            write_record(self.paths.directory, self.record)
        return host


@dataclass(frozen=True)
class Source:
    """What new hosts are made from.

    Attributes:
        tree: the payload package that is copied.
        tree_sha256: its digest.
        authorized_key: the public line that may log in.
    """

    tree: Path
    tree_sha256: str
    authorized_key: str


@dataclass(frozen=True)
class Raising:
    """The acts of one `up` or `boot`."""

    keeper: RecordKeeper
    backend: HostBackend
    clock: Clock
    say: Callable[[str], None]

    def plan_hosts(self, count: int, disk_bytes: int | None) -> None:
        """Write the records of hosts that are missing to have `count`.

        Raises:
            LabError: a lab can't have so many.
        """
        if not 1 <= count <= MAX_HOSTS:
            raise LabError(
                f"a lab can't have {count} hosts",
                why=f"it has 1 to {MAX_HOSTS}: they share one /24",
                next_step="fleetctl lab up --hosts 2; more than one lab may be up, see --dir",
            )
        for index in range(len(self.keeper.record.hosts) + 1, count + 1):
            others = self.keeper.record.hosts
            self.keeper.keep(self.backend.plan_host(index, others, disk_bytes))

    def raise_all(self, source: Source) -> None:
        """Make and start whatever is not up, several hosts at a time.

        Raises:
            LabError: of the first host that failed; the others are up.
        """
        with ThreadPoolExecutor(max_workers=HOSTS_AT_ONCE) as pool:
            hosts = self.keeper.record.hosts
            futures = [pool.submit(self._raise_host, host, source) for host in hosts]
        for future in futures:
            future.result()

    def _raise_host(self, host: HostRecord, source: Source) -> None:
        state = self.backend.state(host)
        if state is HostState.UNMADE:
            host = self._make(host, source)
        elif state is HostState.CUT and host.is_cut:
            self.backend.heal(host)
        elif state is HostState.CUT:
            # nobody cut it: a killed controller had begun to start it and gave it no cable
            self.backend.kill(host)
        if host.is_cut:
            host = self.keeper.keep(replace(host, is_cut=False))
        # what a killed controller had begun to start ends by itself, and is started again
        if state is HostState.UP and self._answers(host):
            return
        self.start(host)

    def _make(self, host: HostRecord, source: Source) -> HostRecord:
        self.backend.discard(host)
        self.backend.make(host, source.tree, source.authorized_key)
        made = replace(
            host,
            phase=Phase.MADE,
            tree_source=str(source.tree),
            tree_sha256=source.tree_sha256,
        )
        return self.keeper.keep(made)

    def start(self, host: HostRecord) -> None:
        """Start a host that is made and wait until it answers, unless its network is cut."""
        began_s = self.clock.monotonic_s()
        if self.backend.state(host) not in {HostState.UP, HostState.CUT}:
            host = self.keeper.keep(replace(host, wanted=Wanted.RUNNING))
            self.backend.kill(host)  # of a host that stopped by itself something may be left
            self.backend.boot(host)
        if host.is_cut:
            self.say(f"{host.name} started; its network is cut")
            return
        self._wait(host)
        took_s = self.clock.monotonic_s() - began_s
        self.say(f"{host.name} answers at {host.address}:{host.port} ({took_s:.1f} s)")

    def _answers(self, host: HostRecord) -> bool:
        """Wait until the host answers; say no when it stopped or took too long."""
        return wait_for_answer(
            host.address,
            host.port,
            self.clock,
            is_hopeless=lambda: self.backend.state(host) is HostState.STOPPED,
            deadline_s=ANSWER_DEADLINE_S,
        )

    def _wait(self, host: HostRecord) -> None:
        if self._answers(host):
            return
        stopped = self.backend.state(host) is HostState.STOPPED
        problem = "it stopped" if stopped else f"no SSH for {ANSWER_DEADLINE_S:g} s"
        raise LabError(
            f"{host.name} does not answer at {host.address}:{host.port}",
            why=f"{problem}; its console says:\n{self.backend.last_words(host)}",
            next_step=f"fleetctl lab kill {host.name}, then fleetctl lab boot {host.name}",
        )
