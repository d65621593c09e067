"""Keys of a lab: one for the operator, one for each host."""

from __future__ import annotations

from pathlib import Path

from fleetctl.lab.commands import run


def ensure_key(path: Path, comment: str) -> str:
    """Create an ed25519 key pair at `path` unless it is there; return the public line."""
    public = path.with_name(f"{path.name}.pub")
    if not (path.exists() and public.exists()):
        path.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)])
    return public.read_text(encoding="ascii").strip()


def known_hosts_line(address: str, port: int, public_line: str) -> str:
    """Return the known_hosts entry of a host; ports other than 22 are part of its name."""
    name = address if port == 22 else f"[{address}]:{port}"
    algorithm, key = public_line.split()[:2]
    return f"{name} {algorithm} {key}\n"
