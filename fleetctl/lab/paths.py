"""Where a lab keeps its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROBE_PREFIX = ".probe-"  # directories in which it is tried what the machine permits


@dataclass(frozen=True)
class LabPaths:
    """The files of one lab; everything else in the directory is not the lab's."""

    directory: Path

    @property
    def inventory(self) -> Path:
        """The inventory of the lab's hosts."""
        return self.directory / "inventory.toml"

    @property
    def known_hosts(self) -> Path:
        """The host keys, for strict checking."""
        return self.directory / "known_hosts"

    @property
    def identity(self) -> Path:
        """The private key that opens every host of the lab."""
        return self.directory / "id_ed25519"

    @property
    def hosts(self) -> Path:
        """The directories of the hosts."""
        return self.directory / "hosts"

    def host(self, name: str) -> Path:
        """Return the directory of one host."""
        return self.hosts / name

    def console(self, name: str) -> Path:
        """Return what a host's first process printed."""
        return self.host(name) / "console.log"
