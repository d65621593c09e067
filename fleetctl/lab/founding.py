"""How a lab begins: its kind, its token and its network are chosen and written down."""

from __future__ import annotations

import os
import pwd
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fleetctl.clock import Clock
from fleetctl.errors import LabError
from fleetctl.lab.backend import HostBackend
from fleetctl.lab.backends import backend_for
from fleetctl.lab.clearing import clear
from fleetctl.lab.commands import find_program, run
from fleetctl.lab.locks import directory_lock
from fleetctl.lab.network import CHOICE_LOCK, free_network
from fleetctl.lab.paths import LabPaths
from fleetctl.lab.permission import Permitted, what_is_permitted
from fleetctl.lab.processes import check_replacement
from fleetctl.lab.record import Kind, LabRecord, write_record


def found_lab(
    paths: LabPaths, clock: Clock, kind: Kind | None, python: str, engine: Sequence[str] = ()
) -> LabRecord:
    """Write the record of a new lab and create what its hosts share.

    Args:
        paths: of the lab.
        clock: waits for what is left of an earlier lab.
        kind: None: the best this machine permits.
        python: the interpreter that serves.
        engine: further arguments of the engine.

    Raises:
        LabError: this machine doesn't permit the kind, or the directory holds something else.
    """
    clear(paths.directory, clock)  # a lab whose record was lost
    paths.directory.mkdir(parents=True, exist_ok=True)
    if foreign := sorted(entry.name for entry in paths.directory.iterdir()):
        raise LabError(
            f"will not make a lab in {paths.directory}",
            why=f"the directory holds something else: {', '.join(foreign[:3])}",
            next_step="name an empty or a new directory: --dir DIR",
        )
    permitted = _permitted(paths, kind)
    record = LabRecord(
        token=secrets.token_hex(4),
        kind=kind or permitted.kind,
        network="",
        # not $USER, which `su` and `sudo` may leave behind: sshd logs in whom it runs as
        user=pwd.getpwuid(os.geteuid()).pw_name,
        python=python,
        why_this_kind=permitted.why_not_namespaces,
        disk_on_tmpfs=permitted.disk_on_tmpfs,
        engine=tuple(engine),
    )
    if record.kind is Kind.PROCESSES:
        check_replacement()
        _check_name(paths.directory)
        record = replace(record, gpu=gpu_of_machine())
        write_record(paths.directory, record)
        prepare_shared(backend_for(paths.directory, record, clock))
        return record
    with directory_lock(CHOICE_LOCK):
        record = replace(record, network=free_network())
        write_record(paths.directory, record)
        backend_for(paths.directory, record, clock).prepare()
    return record


def gpu_of_machine() -> str:
    """Return the name of this machine's first GPU, which its processes see; empty without one."""
    if find_program("nvidia-smi") is None:
        return ""
    try:
        names = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]).splitlines()
    except LabError:
        return ""  # the program is there, and no driver answers it
    return names[0].strip() if names else ""


def _check_name(directory: Path) -> None:
    """Refuse names that hosts of processes would have to quote in PATH, units and sshd_config."""
    odd = sorted(set(re.sub(r"[A-Za-z0-9._/@+=-]", "", str(directory))))
    if odd:
        raise LabError(
            f"will not make a lab of processes in {directory}",
            why=f"their units and PATH can't hold these characters: {' '.join(map(repr, odd))}",
            next_step="name another directory: --dir DIR",
        )


def prepare_shared(backend: HostBackend) -> None:
    """Create again what the hosts of a lab share, where a restart of this machine took it."""
    with directory_lock(CHOICE_LOCK):
        backend.prepare()


def _permitted(paths: LabPaths, kind: Kind | None) -> Permitted:
    if kind is Kind.PROCESSES:
        return Permitted("asked for by --kind")
    permitted = what_is_permitted(paths.directory)
    if kind is Kind.NAMESPACES and permitted.why_not_namespaces:
        raise LabError(
            "this machine does not permit hosts of namespaces",
            why=permitted.why_not_namespaces,
            next_step="fleetctl lab up --kind processes",
        )
    return permitted
