"""The ssh_config under which the `ssh` program runs for us: ours first, then everything else.

OpenSSH passes `-F` on to the `ssh` it starts for each jump host, so what stands here binds
every hop, which options on the command line would not.
"""

from __future__ import annotations

from pathlib import Path

from fleetctl.host.endpoint import Endpoint

SERVER_ALIVE_INTERVAL_S = 4
# Given up when two questions went unanswered, at the third tick: after 12 s.
SERVER_ALIVE_COUNT = 2
SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")


def config_text(endpoint: Endpoint, home: Path) -> str:
    """Return the configuration for one endpoint; in ssh_config the first value wins."""
    lines = [
        f"StrictHostKeyChecking {'accept-new' if endpoint.accept_new else 'yes'}",
        "UpdateHostKeys no",
        "BatchMode yes",
        "LogLevel ERROR",
        f"ConnectTimeout {max(1, round(endpoint.connect_deadline_s))}",
        f"ServerAliveInterval {SERVER_ALIVE_INTERVAL_S}",
        f"ServerAliveCountMax {SERVER_ALIVE_COUNT}",
        "ControlPersist no",
        "ClearAllForwardings yes",
        "ForwardAgent no",
        "ForwardX11 no",
        "PermitLocalCommand no",
        "RemoteCommand none",
        "RequestTTY no",
        *_known_hosts_lines(endpoint),
        *_identity_lines(endpoint),
    ]
    return "\n".join(lines) + "\n" + _rest(endpoint, home)


def _rest(endpoint: Endpoint, home: Path) -> str:
    if endpoint.ssh_config is None:
        included = (home / ".ssh" / "config", SYSTEM_CONFIG)
        return "".join(f"Include {_quoted(path)}\n" for path in included)
    # Copied, not included: OpenSSH checks the permissions of included files, but not of `-F`.
    return endpoint.ssh_config.read_text(encoding="utf-8")


def _known_hosts_lines(endpoint: Endpoint) -> list[str]:
    if not endpoint.known_hosts_files:
        return []
    files = " ".join(_quoted(path) for path in endpoint.known_hosts_files)
    return [f"UserKnownHostsFile {files}", "GlobalKnownHostsFile none"]


def _identity_lines(endpoint: Endpoint) -> list[str]:
    if not endpoint.identity_files:
        return []
    files = [f"IdentityFile {_quoted(path)}" for path in endpoint.identity_files]
    return ["IdentitiesOnly yes", *files]


def _quoted(path: Path) -> str:
    escaped = str(path.absolute()).replace("%", "%%")
    return f'"{escaped}"'
