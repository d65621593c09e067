"""A lab: hosts on this machine that are reached by ordinary SSH."""

from __future__ import annotations

import contextlib
import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.clock import Clock, SystemClock
from fleetctl.errors import LabError
from fleetctl.lab.backend import HostBackend
from fleetctl.lab.backends import backend_for
from fleetctl.lab.clearing import clear, remove_empty_lab_directory
from fleetctl.lab.founding import found_lab, prepare_shared
from fleetctl.lab.inventory import inventory_text
from fleetctl.lab.keys import ensure_key
from fleetctl.lab.knock import answers
from fleetctl.lab.locks import directory_lock
from fleetctl.lab.paths import LabPaths
from fleetctl.lab.permission import check_machine
from fleetctl.lab.raising import Raising, RecordKeeper, Source
from fleetctl.lab.record import (
    UNIT,
    HostRecord,
    HostState,
    Kind,
    LabRecord,
    Phase,
    Wanted,
    read_record,
)
from fleetctl.lab.serving_tree import check_tree_source, default_tree_source, tree_digest
from fleetctl.lab.ssh import UNKNOWN, ssh_argv, unit_state
from fleetctl.lab.status import HostStatus, LabStatus

KNOCK_TIMEOUT_S = 10.0
UNIT_DEADLINE_S = 20.0


def _silent(_line: str) -> None:
    return


@dataclass(frozen=True)
class Lab:
    """The lab in one directory, up or not.

    Attributes:
        directory: absolute and free of links; see `Lab.at`.
        say: where progress is told, line by line.
    """

    directory: Path
    clock: Clock
    say: Callable[[str], None] = _silent

    @classmethod
    def at(
        cls, directory: Path, *, clock: Clock | None = None, say: Callable[[str], None] = _silent
    ) -> Lab:
        """Return the lab in a directory, which need not exist."""
        return cls(directory.resolve(), clock or SystemClock(), say)

    @property
    def paths(self) -> LabPaths:
        """The files of the lab."""
        return LabPaths(self.directory)

    @property
    def hosts(self) -> tuple[HostRecord, ...]:
        """The hosts, in order; none where there is no lab."""
        record = read_record(self.directory)
        return record.hosts if record else ()

    def host(self, name: str) -> HostRecord:
        """Return one host.

        Raises:
            LabError: there is no such host, or no lab.
        """
        return self._record().host(name)

    def disk(self, name: str) -> Path:
        """Return where this machine sees what a host wrote; look, but don't write while it runs."""
        record = self._record()
        return self._backend(record).disk(record.host(name))

    def up(
        self,
        hosts: int = 1,
        *,
        kind: Kind | None = None,
        python: Path | None = None,
        tree_source: Path | None = None,
        disk_bytes: int | None = None,
        engine: Sequence[str] = (),
    ) -> None:
        """Bring the lab to at least `hosts` hosts, all of which answer; keeps what is there.

        Args:
            hosts: how many there should be; more that are there stay.
            kind: None: what the lab is, or the best this machine permits.
            python: the interpreter that serves; None: the one that runs this.
            tree_source: the payload package that is copied to new hosts; None: this repository's.
            disk_bytes: size of the whole writable disk of each new host; None: this machine's.
            engine: further arguments of the engine in the serve script, such as its sizes.

        Raises:
            LabError: the machine lacks something, or a host does not answer.
        """
        check_machine()
        source_tree = (tree_source or default_tree_source()).resolve()
        check_tree_source(source_tree)
        with self._locked():
            record = read_record(self.directory)
            self._check_kind(record, kind)
            self._check_engine(record, engine)
            if record is None:
                served_by = python or Path(sys.executable)
                record = found_lab(self.paths, self.clock, kind, str(served_by.absolute()), engine)
            else:
                prepare_shared(self._backend(record))
            authorized_key = ensure_key(self.paths.identity, "fleetctl lab")
            source = Source(source_tree, tree_digest(source_tree), authorized_key)
            raising = self._raising(record)
            raising.plan_hosts(hosts, disk_bytes)
            try:
                raising.raise_all(source)
            finally:
                self._write_access(raising.keeper.record)

    def down(self) -> bool:
        """Remove the lab and everything it has on this machine; tell whether there was any.

        May be repeated, and works after a crash of `up` at any moment.

        Raises:
            LabError: something could not be removed; repeat when its cause is gone.
        """
        if not self.directory.exists():
            return clear(self.directory, self.clock)
        with self._locked():
            return clear(self.directory, self.clock)

    def states(self) -> dict[str, HostState]:
        """Return the state of each host by name, without a login."""
        record = read_record(self.directory)
        if record is None:
            return {}
        return {host.name: self._state(record, host) for host in record.hosts}

    def status(self) -> LabStatus:
        """Look at every host, several at a time, and ask each what its service does."""
        record = read_record(self.directory)
        if record is None:
            return LabStatus(self.directory, kind=None)
        with ThreadPoolExecutor(max_workers=8) as pool:
            hosts = tuple(pool.map(lambda host: self._look(record, host), record.hosts))
        return LabStatus(
            self.directory,
            kind=record.kind,
            hosts=hosts,
            inventory=self.paths.inventory,
            why_this_kind=record.why_this_kind,
            stale_hosts=_stale_hosts(record),
            gpu=record.gpu,
        )

    def kill(self, name: str) -> None:
        """Cut a host from power; its disk stays."""
        with self._changing(name) as (raising, host):
            raising.keeper.keep(replace(host, wanted=Wanted.KILLED))
            raising.backend.kill(host)

    def boot(self, name: str) -> None:
        """Give a host power again and wait until it answers, unless its network is cut.

        Raises:
            LabError: it does not answer.
        """
        with self._changing(name) as (raising, host):
            prepare_shared(raising.backend)
            raising.start(host)

    def cut(self, name: str) -> None:
        """Cut a host from the network until `heal`, also across boots.

        Raises:
            LabError: hosts of this kind can't be cut.
        """
        with self._changing(name) as (raising, host):
            raising.backend.check_can_be_cut(host)
            raising.keeper.keep(replace(host, is_cut=True))
            if raising.backend.state(host) is HostState.UP:
                raising.backend.cut(host)

    def heal(self, name: str) -> None:
        """Connect a host to the network again."""
        with self._changing(name) as (raising, host):
            raising.backend.check_can_be_cut(host)
            raising.keeper.keep(replace(host, is_cut=False))
            if raising.backend.state(host) is HostState.CUT:
                raising.backend.heal(host)

    def ssh_argv(self, name: str, command: Sequence[str] = ()) -> list[str]:
        """Return the ssh command line to a host, with strict host keys."""
        record = self._record()
        return ssh_argv(self.paths, record, record.host(name), command)

    def _record(self) -> LabRecord:
        record = read_record(self.directory)
        if record is None:
            raise LabError(
                f"there is no lab in {self.directory}",
                why="no `fleetctl lab up` was run for this directory",
                next_step=f"fleetctl lab up --dir {self.directory}",
            )
        return record

    def _backend(self, record: LabRecord) -> HostBackend:
        return backend_for(self.directory, record, self.clock)

    def _raising(self, record: LabRecord) -> Raising:
        keeper = RecordKeeper(self.paths, record)
        return Raising(keeper, self._backend(record), self.clock, self.say)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with directory_lock(self.directory):
                yield
        finally:
            remove_empty_lab_directory(self.directory)

    @contextlib.contextmanager
    def _changing(self, name: str) -> Iterator[tuple[Raising, HostRecord]]:
        self._record()  # before the lock would create the directory
        with directory_lock(self.directory):
            record = self._record()
            host = record.host(name)
            if host.phase is Phase.MAKING:
                raise LabError(
                    f"{name} is not made yet",
                    why="a `lab up` was interrupted",
                    next_step=f"fleetctl lab up --hosts {len(record.hosts)}",
                )
            yield self._raising(record), host

    def _check_kind(self, record: LabRecord | None, kind: Kind | None) -> None:
        if record is not None and kind not in {None, record.kind}:
            raise LabError(
                f"the lab in {self.directory} is made of {record.kind}",
                why=f"it can't get hosts of {kind}",
                next_step="fleetctl lab down first, or another --dir",
            )

    def _check_engine(self, record: LabRecord | None, engine: Sequence[str]) -> None:
        if record is not None and engine and tuple(engine) != record.engine:
            raise LabError(
                f"the lab in {self.directory} serves with other arguments of the engine",
                why=f"its serve scripts say {shlex.join(record.engine) or 'none'}",
                next_step="fleetctl lab down first, or another --dir",
            )

    def _write_access(self, record: LabRecord) -> None:
        """Write the inventory and known_hosts: of the hosts that are made."""
        made = tuple(host for host in record.hosts if host.phase is Phase.MADE)
        backend = self._backend(record)
        keys = "".join(backend.known_hosts(host) for host in made)
        self.paths.known_hosts.write_text(keys, encoding="ascii")
        shown = replace(record, hosts=made)
        text = inventory_text(self.paths, shown, machine=socket.gethostname())
        self.paths.inventory.write_text(text, encoding="utf-8")

    def _look(self, record: LabRecord, host: HostRecord) -> HostStatus:
        state = self._state(record, host)
        if state is not HostState.UP:
            return HostStatus(host, state, UNKNOWN)
        argv = ssh_argv(self.paths, record, host, ["systemctl", "is-active", UNIT])
        return HostStatus(host, state, unit_state(argv, deadline_s=UNIT_DEADLINE_S))

    def _state(self, record: LabRecord, host: HostRecord) -> HostState:
        state = self._backend(record).state(host)
        if state is not HostState.UP:
            return state
        answered = answers(host.address, host.port, timeout_s=KNOCK_TIMEOUT_S)
        return state if answered else HostState.SILENT


def _stale_hosts(record: LabRecord) -> tuple[str, ...]:
    sources = {Path(host.tree_source) for host in record.hosts if host.tree_source}
    now = {str(source): tree_digest(source) for source in sources if source.is_dir()}
    is_stale = [
        now.get(host.tree_source, host.tree_sha256) != host.tree_sha256 for host in record.hosts
    ]
    return tuple(host.name for host, stale in zip(record.hosts, is_stale, strict=True) if stale)
