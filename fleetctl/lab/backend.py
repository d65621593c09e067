"""What a kind of host must be able to do; both kinds pass the tests in tests/lab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from fleetctl.lab.record import HostRecord, HostState


class HostBackend(Protocol):
    """The hosts of one lab, made of something.

    Every act may be repeated, and may follow one that a crash left half done.
    """

    def plan_host(
        self, index: int, others: Sequence[HostRecord], disk_bytes: int | None
    ) -> HostRecord:
        """Return the record of a host to be made beside the others.

        Raises:
            LabError: this kind can't make such a host.
        """
        ...

    def prepare(self) -> None:
        """Create what all hosts of the lab share; keeps what is there."""
        ...

    def make(self, host: HostRecord, tree_source: Path, authorized_key: str) -> None:
        """Write the disk of a new host."""
        ...

    def boot(self, host: HostRecord) -> None:
        """Start the host; its sshd answers soon after."""
        ...

    def kill(self, host: HostRecord) -> None:
        """End every process of the host at once; its disk stays."""
        ...

    def check_can_be_cut(self, host: HostRecord) -> None:
        """Tell whether hosts of this kind have a network that can be cut.

        Raises:
            LabError: they haven't.
        """
        ...

    def cut(self, host: HostRecord) -> None:
        """Cut the host from the network.

        Raises:
            LabError: this kind can't.
        """
        ...

    def heal(self, host: HostRecord) -> None:
        """Connect the host to the network again."""
        ...

    def discard(self, host: HostRecord) -> None:
        """Remove everything of one host, however far its making came."""
        ...

    def discard_all(self) -> None:
        """Remove everything the lab has on this machine, except the files of its directory."""
        ...

    def state(self, host: HostRecord) -> HostState:
        """Return what can be told about the host without talking to it."""
        ...

    def disk(self, host: HostRecord) -> Path:
        """Return where this machine sees what the host wrote."""
        ...

    def known_hosts(self, host: HostRecord) -> str:
        """Return the host's line of known_hosts."""
        ...

    def last_words(self, host: HostRecord) -> str:
        """Return the end of the host's console, for error messages."""
        ...
