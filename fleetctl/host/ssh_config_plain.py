"""A small ssh_config reader for machines without an `ssh` program: exact, or a refusal.

It answers in the words of `ssh -G`, so that one place interprets both.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetctl.errors import SshConfigRefused

_REPEATED = {"identityfile", "certificatefile"}
_KEY_NAMES = (
    "id_rsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "id_xmss",
    "id_dsa",
)


def default_files(home: Path) -> tuple[Path, ...]:
    """Return the files OpenSSH reads without `-F`, the user's first."""
    return home / ".ssh" / "config", Path("/etc/ssh/ssh_config")


def resolve(
    alias: str, *, user: str | None, port: int | None, files: Sequence[Path], local_user: str
) -> dict[str, tuple[str, ...]]:
    """Return the options in force for a host, defaults included.

    Raises:
        SshConfigRefused: a file uses `Match`, or an `Include` that includes something.
    """
    options: dict[str, tuple[str, ...]] = {}
    if user:
        options["user"] = (user,)
    if port:
        options["port"] = (str(port),)
    for path in files:
        for key, value in _lines_for(alias, path):
            if key in _REPEATED:
                options[key] = (*options.get(key, ()), value)
            else:
                options.setdefault(key, (value,))
    # Whichever of the two comes first wins, and `setdefault` kept the order of their coming.
    proxies = [key for key in options if key in {"proxyjump", "proxycommand"}]
    for key in proxies[1:]:
        del options[key]
    return _with_defaults(alias, options, local_user)


def _lines_for(alias: str, path: Path) -> Iterator[tuple[str, str]]:
    if not path.is_file():
        return
    applies = True
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        key, value = _split(line)
        if key == "host":
            applies = _matches(alias, value)
        elif key == "match" or (key == "include" and _includes_something(value, path)):
            raise SshConfigRefused(
                f"cannot understand {path} without an `ssh` program",
                why=f"line {number} uses `{key.capitalize()}`",
                next_step="install openssh-client, or say address, user and port in the inventory",
            )
        elif key and key != "include" and applies:
            yield key, value


def _split(line: str) -> tuple[str, str]:
    found = re.fullmatch(r"\s*([^\s=#]+)(?:\s*=\s*|\s+)(.*?)\s*", line)
    if found is None:
        return "", ""
    key, value = found.groups()
    is_quoted_whole = len(value) > 1 and value[0] == value[-1] == '"' and value.count('"') == 2
    return key.lower(), value[1:-1] if is_quoted_whole else value


def _matches(alias: str, patterns: str) -> bool:
    verdict = False
    for pattern in shlex.split(patterns):
        if fnmatch.fnmatchcase(alias, pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            verdict = True
    return verdict


def _includes_something(value: str, path: Path) -> bool:
    patterns = (path.parent / Path(word).expanduser() for word in shlex.split(value))
    return any(
        found
        for pattern in patterns
        for found in Path("/").glob(str(pattern.absolute().relative_to("/")))
    )


def _with_defaults(
    alias: str, options: dict[str, tuple[str, ...]], local_user: str
) -> dict[str, tuple[str, ...]]:
    name = options.get("hostname", ("%h",))[0]
    defaults = {
        "user": (local_user,),
        "port": ("22",),
        "identityfile": tuple(f"~/.ssh/{name}" for name in _KEY_NAMES),
        "userknownhostsfile": ("~/.ssh/known_hosts ~/.ssh/known_hosts2",),
        "globalknownhostsfile": ("/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2",),
    }
    host_name = name.replace("%%", "\0").replace("%h", alias).replace("\0", "%")
    return {**defaults, **options, "hostname": (host_name.lower(),)}
