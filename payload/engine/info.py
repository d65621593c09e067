"""What the process really runs, for `/server_info`."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import torch

from payload.engine.assemble import Assembly
from payload.flags import NAMES

PACKAGES = ("starlette", "uvicorn", "triton")


def server_info(assembly: Assembly, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return flags, versions, buckets, sizes, sources and findings."""
    config, flags = assembly.config, assembly.flags
    return {
        "pid": os.getpid(),
        "device": device_name(assembly.device.torch_device),
        "overlap": assembly.device.overlaps,
        "index_k": assembly.cache.key_format.value,
        "flags": {name: environ.get(name) for name in NAMES.values()},
        "effective_flags": {name: getattr(flags, field) for field, name in NAMES.items()},
        "environ": {key: value for key, value in environ.items() if key.startswith("SGLANG_")},
        "versions": versions(),
        "graph_buckets": list(assembly.runner.buckets),
        "max_batch": config.max_batch,
        "context_tokens": config.context_tokens,
        "cache_pages": config.cache_pages,
        "model": {
            "layers": config.model.layers,
            "depth": config.model.depth,
            "heads": config.model.heads,
            "top_k": config.model.top_k,
        },
        "slots": {
            loaded.family: {
                "variant": loaded.name,
                "module": loaded.module,
                "file": loaded.file,
                "sha256": loaded.sha256,
            }
            for loaded in assembly.slots.all()
        },
        "findings": assembly.engine.findings(),
    }


def device_name(device: torch.device) -> str:
    """Return the GPU's name, or what kind of CPU it is."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"cpu ({platform.machine()}, emulated streams)"


def versions() -> dict[str, str]:
    """Return the versions of what serves."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found
