"""What OpenSSH would do for a host name, as a value: asked of `ssh -G`, worked out, or refused.

Facts that shaped it: paramiko takes unknown `Match` words as matched, leaves `Include` alone and
visits jump hosts backwards. So its parser is not used at all.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import SshConfigRefused
from fleetctl.host import ssh_config_plain

SSH_G_DEADLINE_S = 30.0
# Options that change who is reached or who is let in, and that paramiko can't honour.
_BEYOND_PARAMIKO = {
    "proxycommand": "ProxyCommand",
    "knownhostscommand": "KnownHostsCommand",
    "revokedhostkeys": "RevokedHostKeys",
    "pkcs11provider": "PKCS11Provider",
    "bindinterface": "BindInterface",
}
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}

Options = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Destination:
    """A host as typed: `[user@]host[:port]`."""

    host: str
    user: str | None = None
    port: int | None = None


@dataclass(frozen=True)
class Resolved:
    """All that is needed to reach one host, tokens expanded.

    Attributes:
        alias: the name as typed.
        host_name: the name or address to connect to; also the name in known_hosts.
        key_name: `HostKeyAlias`, when known_hosts calls the host something else.
        proxy_jump: hops in the order in which they are visited.
        agent: path of the agent's socket; None when no agent is to be asked.
        beyond_paramiko: options in force that only OpenSSH can honour.
    """

    alias: str
    host_name: str
    user: str
    port: int
    key_name: str | None
    identity_files: tuple[Path, ...]
    certificate_files: tuple[Path, ...]
    is_identities_only: bool
    agent: Path | None
    user_known_hosts: tuple[Path, ...]
    system_known_hosts: tuple[Path, ...]
    is_hashing_names: bool
    proxy_jump: tuple[Destination, ...]
    family: socket.AddressFamily
    bind_address: str | None
    beyond_paramiko: tuple[str, ...]


def parse_destination(text: str) -> Destination:
    """Read `[user@]host[:port]`, `[user@][v6]:port` or the same as an `ssh://` address.

    Raises:
        SshConfigRefused: it is none of these.
    """
    rest = text.removeprefix("ssh://").rstrip("/") if text.startswith("ssh://") else text
    user, _, place = rest.rpartition("@")
    found = re.fullmatch(
        r"\[(?P<v6>[^\]]+)\](?::(?P<p6>\d+))?|(?P<host>[^:]+)(?::(?P<port>\d+))?", place
    )
    if found is None:
        if place.count(":") > 1 and "[" not in place:
            return Destination(place, user or None)
        raise SshConfigRefused(
            f"cannot read the jump host `{text}`",
            why="it is not of the form [user@]host[:port]",
            next_step="correct ProxyJump in ssh_config, or `proxy_jump` in the inventory",
        )
    port = found["port"] or found["p6"]
    return Destination(found["host"] or found["v6"], user or None, int(port) if port else None)


def resolve(destination: Destination, *, config: Path | None) -> Resolved:
    """Return what OpenSSH would do for `destination`.

    Raises:
        SshConfigRefused: the configuration is wrong, or needs an `ssh` program to be understood.
    """
    if shutil.which("ssh"):
        options = parse_ssh_g(_ask_ssh(destination, config))
    else:
        options = ssh_config_plain.resolve(
            destination.host,
            user=destination.user,
            port=destination.port,
            files=(config,) if config else ssh_config_plain.default_files(_home()),
            local_user=_local_user(),
        )
    return interpret(destination.host, options)


def parse_ssh_g(text: str) -> Options:
    """Return the options that `ssh -G` printed, each with its values in order."""
    options: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        options[key.lower()] = (*options.get(key.lower(), ()), value)
    return options


def interpret(alias: str, options: Options) -> Resolved:
    """Turn options as `ssh -G` prints them into a value, expanding what it leaves unexpanded."""

    def one(key: str, default: str = "") -> str:
        return options.get(key, (default,))[0]

    tokens = _tokens(alias, one("hostname", alias), one("user"), int(one("port", "22")))

    def paths(key: str) -> tuple[Path, ...]:
        values = (_expand(value, tokens) for value in options.get(key, ()))
        return tuple(Path(value) for value in values if value != "none")

    def path_list(key: str) -> tuple[Path, ...]:
        values = (_expand(value, tokens) for value in one(key).split())
        return tuple(Path(value) for value in values if value != "none")

    beyond = [n for key, n in _BEYOND_PARAMIKO.items() if one(key, "none").lower() != "none"]
    if one("pubkeyauthentication", "yes").lower() in {"no", "false"}:
        beyond.append("PubkeyAuthentication no")
    return Resolved(
        alias=alias,
        host_name=tokens["h"],
        user=tokens["r"],
        port=int(tokens["p"]),
        key_name=one("hostkeyalias") or None,
        identity_files=paths("identityfile"),
        certificate_files=paths("certificatefile"),
        is_identities_only=one("identitiesonly", "no") in {"yes", "true"},
        agent=_agent(one("identityagent"), tokens),
        user_known_hosts=path_list("userknownhostsfile"),
        system_known_hosts=path_list("globalknownhostsfile"),
        is_hashing_names=one("hashknownhosts", "no") in {"yes", "true"},
        proxy_jump=_jumps(one("proxyjump", "none"), tokens),
        family=_FAMILIES.get(one("addressfamily", "any"), socket.AF_UNSPEC),
        bind_address=one("bindaddress") or None,
        beyond_paramiko=tuple(beyond),
    )


def _ask_ssh(destination: Destination, config: Path | None) -> str:
    argv = ["ssh", "-G"]
    if config:
        argv += ["-F", str(config)]
    if destination.user:
        argv += ["-l", destination.user]
    if destination.port:
        argv += ["-p", str(destination.port)]
    try:
        done = subprocess.run(
            [*argv, "--", destination.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SSH_G_DEADLINE_S,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        why = f"`ssh -G` took more than {SSH_G_DEADLINE_S:g} s; a `Match exec` may hang"
        raise _refused(destination, why) from error
    if done.returncode != 0:
        why = done.stderr.strip() or f"`ssh -G` ended with exit code {done.returncode}"
        raise _refused(destination, why)
    return done.stdout


def _refused(destination: Destination, why: str) -> SshConfigRefused:
    return SshConfigRefused(
        f"OpenSSH refuses its configuration for {destination.host}",
        why=why,
        next_step=f"`ssh -G {destination.host}` must work; correct the file that it names",
    )


def _jumps(text: str, tokens: Mapping[str, str]) -> tuple[Destination, ...]:
    if text.lower() == "none":
        return ()
    return tuple(parse_destination(part.strip()) for part in _percent(text, tokens).split(","))


def _agent(value: str, tokens: Mapping[str, str]) -> Path | None:
    if value.lower() == "none":
        return None
    if value in {"", "SSH_AUTH_SOCK"}:
        place = os.environ.get("SSH_AUTH_SOCK", "")
    elif value.startswith("$") and not value.startswith("${"):
        place = os.environ.get(value[1:], "")
    else:
        place = _expand(value, tokens)
    return Path(place) if place else None


def _tokens(alias: str, host_name: str, user: str, port: int) -> dict[str, str]:
    machine = socket.gethostname()
    return {
        "%": "%",
        "d": str(_home()),
        "h": host_name,
        "i": str(os.getuid()),
        "k": alias,
        "l": machine,
        "L": machine.split(".")[0],
        "n": alias,
        "p": str(port),
        "r": user,
        "u": _local_user(),
    }


def _expand(text: str, tokens: Mapping[str, str]) -> str:
    text = _percent(text, tokens)
    text = re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found[1], ""), text)
    if text == "~" or text.startswith("~/"):
        return tokens["d"] + text[1:]
    return str(Path(text).expanduser()) if text.startswith("~") else text


def _percent(text: str, tokens: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        if found[1] in tokens:
            return tokens[found[1]]
        raise SshConfigRefused(
            f"cannot expand `{found[0]}` in ssh_config",
            why=f"fleetctl does not know this token; it stands in `{text}`",
            next_step='write the value out, or use `transport = "openssh"` in the inventory',
        )

    return re.sub(r"%(.)", value, text)


def _home() -> Path:
    # As OpenSSH: the account's home, whatever $HOME says.
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def _local_user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name
