"""Where a host is and how to get in: the value the inventory builds and every back end takes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path


class Backend(enum.StrEnum):
    """The programs that can carry a `Transport`; the words of `transport` in an inventory."""

    PARAMIKO = "paramiko"
    OPENSSH = "openssh"
    LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """One host as a person names it; what is not said here comes from ssh_config.

    Attributes:
        name: the host's name in the inventory, for messages.
        address: what one would type after `ssh`: an alias, a DNS name or an IP address.
        user: login name; None takes ssh_config's, then the local user's.
        port: TCP port; None takes ssh_config's, then 22.
        identity_files: private keys, tried first; empty takes ssh_config's. With keys given here
            only these are tried, on every hop, as with `IdentitiesOnly yes`.
        known_hosts_files: the only known_hosts files to trust, on every hop; empty takes
            ssh_config's user and system files.
        proxy_jump: hops in the order they are visited, each `[user@]host[:port]`; None takes
            ssh_config's, an empty tuple forbids hops.
        ssh_config: the only configuration file to read (`ssh -F`); None reads user's and system's.
        connect_deadline_s: for TCP, banner and key exchange of each hop, retries included.
        auth_deadline_s: for each login.
        shell_deadline_s: how long the login shell may take before it runs our command;
            its start-up files may be slow, and that time is not the command's.
        accept_new: learn the key of a host that has none yet (`StrictHostKeyChecking accept-new`);
            a changed key is refused all the same.
    """

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    identity_files: tuple[Path, ...] = ()
    known_hosts_files: tuple[Path, ...] = ()
    proxy_jump: tuple[str, ...] | None = None
    ssh_config: Path | None = None
    connect_deadline_s: float = 20.0
    auth_deadline_s: float = 30.0
    shell_deadline_s: float = 90.0
    accept_new: bool = False
