"""The serving tree of a lab host: payload, slots, serve script and unit, as in production."""

from __future__ import annotations

import hashlib
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from fleetctl.errors import LabError
from fleetctl.lab.files import make_directory, make_readable
from fleetctl.lab.record import SERVE_SCRIPT, HostRecord, LabRecord

SLOTS = {
    "indexer.py": "indexer/transient.py",
    "runner.py": "runner/captured.py",
    "cache.py": "cache/bf16.py",
}
LEFT_OUT = ("test_*.py", "bench_*.py", "conftest.py", "__pycache__", "*.pyc")
MODEL = "dsv4-flash"


def default_tree_source() -> Path:
    """Return this repository's payload package."""
    return Path(__file__).resolve().parents[2] / "payload"


@dataclass(frozen=True)
class Service:
    """What a host serves with.

    Attributes:
        tree: the serving tree as the host sees it.
        python: the interpreter that serves.
        port: on the host's 127.0.0.1.
        engine: further arguments of the engine, such as its sizes.
        triton: whether the indexer runs on Triton's kernels, which needs a GPU.
    """

    tree: str
    python: str
    port: int
    engine: tuple[str, ...] = ()
    triton: bool = False


def service_of(record: LabRecord, host: HostRecord) -> Service:
    """Return what a host of a lab serves with."""
    return Service(host.tree, record.python, host.service_port, record.engine, bool(record.gpu))


def check_tree_source(source: Path) -> None:
    """Refuse a payload that lacks what the slots are filled from.

    Raises:
        LabError: names the missing files.
    """
    missing = [path for path in ["engine", *SLOTS.values()] if not (source / path).exists()]
    if missing:
        raise LabError(
            f"cannot make a serving tree from {source}",
            why=f"it has no {', '.join(missing)}",
            next_step="run fleetctl from a complete checkout",
        )


def tree_digest(source: Path) -> str:
    """Return a sha256 over names and contents of the files that a tree is made from."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        if path.is_file() and not any(Path(p).match(w) for p in relative.parts for w in LEFT_OUT):
            digest.update(f"{relative}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def write_tree(source: Path, destination: Path, service: Service) -> None:
    """Write a complete serving tree at `destination`, where the host sees it as `service.tree`."""
    python = destination / "python"
    slots = python / "serve" / "dsv4"
    for directory in (slots, destination / "models" / MODEL):
        make_directory(directory)
    shutil.copytree(source, python / "payload", ignore=shutil.ignore_patterns(*LEFT_OUT))
    (python / "serve" / "__init__.py").write_text("", encoding="utf-8")
    (slots / "__init__.py").write_text("", encoding="utf-8")
    for slot, found_as in SLOTS.items():
        shutil.copyfile(source / found_as, slots / slot)
    (destination / SERVE_SCRIPT).write_text(serve_script(service), encoding="utf-8")
    make_readable(destination)
    (destination / SERVE_SCRIPT).chmod(0o755)


def serve_script(service: Service) -> str:
    """Return a serve script in the style of production."""
    more = f" \\\n  {shlex.join(service.engine)}" if service.engine else ""
    return f"""\
#!/usr/bin/env bash
# Decode service of DeepSeek-V4-Flash; started by sglang-dsv4-decode.service.
# To change a flag: edit its line, then `systemctl restart sglang-dsv4-decode.service`.
set -euo pipefail

PY={shlex.quote(service.python)}
TREE={shlex.quote(service.tree)}
PORT={service.port}

export PYTHONPATH="$TREE/python"
export PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=1

# index keys: 1 = bf16, 0 = fp8
export SGLANG_DSV4_BF16_INDEX_K=1
export SGLANG_DSV4_TRITON_INDEXER={int(service.triton)}
export SGLANG_OPT_USE_MULTI_STREAM_OVERLAP=1  # indexer on a side stream

# probes: off in production
#export SGLANG_DSV4_GE_DIFF=1
export SGLANG_DSV4_GE_DIFF=0
export SGLANG_DSV4_IDXK_CANARY=0
export SGLANG_LOG_DECODE_GRAPH_KEY=0

cd "$TREE"
exec "$PY" -m payload.engine \\
  --host 127.0.0.1 --port "$PORT" \\
  --model-path "$TREE/models/{MODEL}" \\
  --served-model-name {MODEL} \\
  --indexer serve.dsv4.indexer \\
  --runner serve.dsv4.runner \\
  --cache serve.dsv4.cache{more}
"""


def unit_file(service: Service) -> str:
    """Return the unit that runs the serve script."""
    return f"""\
[Unit]
Description=SGLang decode server, {MODEL}
After=network.target

[Service]
Type=simple
WorkingDirectory={service.tree}
ExecStart={service.tree}/{SERVE_SCRIPT}
Restart=on-failure
RestartSec=1
TimeoutStopSec=30

[Install]
WantedBy=multi-user.target
"""
