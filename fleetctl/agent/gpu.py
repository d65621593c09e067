"""GPU memory as `nvidia-smi` tells it: a stopped service must have given it back."""

from __future__ import annotations

import subprocess

_DEADLINE_S = 15.0
_MEMORY_USED = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")


def memory_used_mib() -> tuple[int, ...]:
    """Return the memory in use on each GPU, in MiB; empty where `nvidia-smi` tells nothing."""
    try:
        done = subprocess.run(
            _MEMORY_USED,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_DEADLINE_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(line) for line in done.stdout.decode().split() if line.isdigit())
