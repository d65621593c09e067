"""What the `ssh` program meant: its exit code is 255 for everything, so its words must do.

The words are those of OpenSSH 8 to 10 in the C locale; anything else counts as unreachable,
with the words quoted.
"""

from __future__ import annotations

from fleetctl.errors import (
    HostError,
    HostKeyRejected,
    HostUnreachable,
    LoginRefused,
    SshConfigRefused,
)
from fleetctl.host.endpoint import Endpoint
from fleetctl.host.handshakes import HandshakeDropped

_KEY_CHANGED = ("IDENTIFICATION HAS CHANGED", "REVOKED HOST KEY", "HOST IDENTIFICATION")
_KEY_UNKNOWN = ("Host key verification failed", "host key is known for")
_REFUSED = ("Permission denied (", "Too many authentication failures", "sign_and_send_pubkey")
_CONFIG = (
    "Bad configuration option",
    "terminating, ",
    "jumphost loop",
    "keyword ",
    "Bad owner or permissions",
    "Unsupported option",
    "no argument after keyword",
)
_DROPPED = (
    "kex_exchange_identification",
    "ssh_exchange_identification",
    "Connection reset by",
    "Connection closed by",
)


def failure(endpoint: Endpoint, said: str) -> HostError:
    """Return the error for an `ssh` that could not connect, by what it printed."""
    name = endpoint.name
    why = _last_words(said)
    by_hand = f"`ssh -v {endpoint.address} true`"
    if _has(said, _CONFIG):
        return SshConfigRefused(
            f"OpenSSH refuses its configuration for {name}",
            why=why,
            next_step=f"`ssh -G {endpoint.address}` must work; correct the file that it names",
        )
    if _has(said, _KEY_CHANGED):
        return HostKeyRejected(
            f"a host key on the way to {name} has changed or is revoked",
            why=why,
            next_step="if the host was reinstalled, remove the line named above and learn the new "
            "key; if not, somebody may be listening: stop",
        )
    if _has(said, _KEY_UNKNOWN):
        return HostKeyRejected(
            f"a host key on the way to {name} is not known",
            why=why,
            next_step=f"`ssh-keyscan {_port_option(endpoint)}{endpoint.address}`, compare its "
            "fingerprint on the host, and add the line to known_hosts",
        )
    if _has(said, _REFUSED):
        return LoginRefused(
            f"the login to {name} was refused",
            why=why,
            next_step=f"{by_hand} lists the keys that are offered",
        )
    if _has(said, _DROPPED):
        return HandshakeDropped(
            f"no SSH handshake with {name}",
            why=why,
            next_step="check that an sshd listens there and that its MaxStartups allows more "
            "logins at once",
        )
    return HostUnreachable(
        f"cannot reach {name}",
        why=why,
        next_step=f"check that the host is up: {by_hand}",
    )


def _has(said: str, phrases: tuple[str, ...]) -> bool:
    return any(phrase in said for phrase in phrases)


def _last_words(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip(" @\t")]
    return " / ".join(lines[-4:]) or "ssh ended without a word"


def _port_option(endpoint: Endpoint) -> str:
    return f"-p {endpoint.port} " if endpoint.port else ""
