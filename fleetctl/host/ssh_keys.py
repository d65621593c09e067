"""Which keys paramiko may try for a login, in OpenSSH's order, and which it can't use and why."""

from __future__ import annotations

import base64
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.agent import AgentSSH
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey, SourceResult

AGENT_DEADLINE_S = 10.0


@dataclass(frozen=True)
class NamedKey:
    """A key that can sign, and what to call it in a message."""

    name: str
    key: paramiko.PKey


@dataclass(frozen=True)
class Keys:
    """What a login may try.

    Attributes:
        usable: in the order in which they are tried.
        unusable: one clause each, for the message when the login fails.
    """

    usable: tuple[NamedKey, ...]
    unusable: tuple[str, ...]


class Agent(AgentSSH):
    """An agent at a path of our choosing; paramiko's own knows only SSH_AUTH_SOCK."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(AGENT_DEADLINE_S)
        try:
            connection.connect(str(path))
            self._connect(connection)  # type: ignore[attr-defined] # not in the stubs
        except (OSError, paramiko.SSHException):
            connection.close()
            raise

    def close(self) -> None:
        """Let go of the agent."""
        self._close()  # type: ignore[attr-defined] # not in the stubs


class KeyStrategy(AuthStrategy):
    """Tries our keys and nothing else, and stops when the server has hung up."""

    def __init__(self, user: str, keys: Keys) -> None:
        super().__init__(ssh_config=paramiko.SSHConfig())
        self._user = user
        self._keys = keys
        self._transport: paramiko.Transport | None = None

    def get_sources(self) -> Iterator[AuthSource]:
        """Yield one source for each key while the server listens."""
        for named in self._keys.usable:
            if self._transport is not None and not self._transport.is_active():
                return
            yield InMemoryPrivateKey(self._user, named.key)

    def authenticate(self, transport: paramiko.Transport) -> list[SourceResult]:
        """Log in, or raise paramiko's AuthFailure."""
        self._transport = transport
        return super().authenticate(transport)


@contextlib.contextmanager
def gathered(
    identity_files: tuple[Path, ...], agent_path: Path | None, *, is_identities_only: bool
) -> Iterator[Keys]:
    """Collect keys from files and the agent; the agent is asked to sign while the body runs."""
    with contextlib.ExitStack() as held:
        unusable: list[str] = []
        agent_keys: list[NamedKey] = []
        if agent_path is not None and agent_path.exists():
            try:
                agent = held.enter_context(contextlib.closing(Agent(agent_path)))
                agent_keys = _usable_agent_keys(agent, unusable)
            except (OSError, paramiko.SSHException) as error:
                unusable.append(f"the agent at {agent_path} does not answer ({error})")
        named_blobs = {path: _public_blob(path) for path in identity_files}
        wanted = [blob for blob in named_blobs.values() if blob]
        in_agent = [k for blob in wanted for k in agent_keys if k.key.asbytes() == blob]
        others = [] if is_identities_only else [k for k in agent_keys if k not in in_agent]
        held_by_agent = {k.key.asbytes() for k in in_agent}
        from_files = [
            key
            for path, blob in named_blobs.items()
            if blob not in held_by_agent and (key := _load(path, unusable))
        ]
        yield Keys((*in_agent, *others, *from_files), tuple(unusable))


def _usable_agent_keys(agent: Agent, unusable: list[str]) -> list[NamedKey]:
    usable = []
    for key in agent.get_keys():
        name = f"{key.comment or key.get_name()} (agent)"
        if key.get_name().startswith("sk-") or "-cert-" in key.get_name():
            unusable.append(f"{name} is a {key.get_name()}, which only OpenSSH can use")
        else:
            usable.append(NamedKey(name, key))
    return usable


def _public_blob(path: Path) -> bytes | None:
    public = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
    with contextlib.suppress(OSError, ValueError, IndexError):
        return base64.b64decode(public.read_text(encoding="utf-8").split()[1], validate=True)
    return None


def _load(path: Path, unusable: list[str]) -> NamedKey | None:
    if path.suffix == ".pub" or not path.is_file():
        return None
    if (_public_blob(path) or b"")[4:].startswith(b"sk-"):
        unusable.append(f"{path} is a FIDO key, which only OpenSSH can use")
        return None
    try:
        return NamedKey(str(path), paramiko.PKey.from_path(path))
    except PermissionError:
        unusable.append(f"{path} is not readable")
    except (paramiko.PasswordRequiredException, TypeError):
        unusable.append(f"{path} has a passphrase; load it into the agent with `ssh-add {path}`")
    except (UnsupportedAlgorithm, paramiko.SSHException, ValueError, OSError) as error:
        unusable.append(f"{path} can't be used by paramiko ({error})")
    return None
