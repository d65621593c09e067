"""How a lab goes: whatever it has on this machine, also after a crash at any moment."""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from pathlib import Path

from fleetctl.clock import Clock
from fleetctl.errors import LabError
from fleetctl.lab.backends import backend_for
from fleetctl.lab.files import remove_directory
from fleetctl.lab.network import tokens_of
from fleetctl.lab.paths import PROBE_PREFIX, LabPaths
from fleetctl.lab.processes import pids_of_lab
from fleetctl.lab.record import (
    Kind,
    LabRecord,
    read_record,
    record_path,
    unfinished_record_path,
)

STRAGGLERS_DEADLINE_S = 30.0
STRAGGLERS_POLL_S = 0.02


def clear(directory: Path, clock: Clock) -> bool:
    """Remove everything of the lab in `directory`; tell whether there was anything.

    The record names the lab; where it is lost, its bridge and its processes do.

    Raises:
        LabError: something could not be removed; the record is still there.
    """
    records, existed = _records(directory), False
    deadline_s = clock.monotonic_s() + STRAGGLERS_DEADLINE_S
    while True:
        for record in records:
            backend_for(directory, record, clock).discard_all()
        existed |= bool(records)
        try:
            existed |= _remove_files(directory)
        except OSError as busy:
            # a program that a killed controller had just started still writes its file
            if busy.errno != errno.ENOTEMPTY or clock.monotonic_s() > deadline_s:
                raise _left(f"remove {busy.filename}", str(busy.strerror), directory) from busy
        else:
            # or was not known by its command yet, in the instant of its start
            if not (records := _records(directory)):
                return existed
            if clock.monotonic_s() > deadline_s:
                raise _left("end all of the lab", "programs of it start again", directory)
        clock.sleep(STRAGGLERS_POLL_S)


def _left(what: str, why: str, directory: Path) -> LabError:
    return LabError(f"cannot {what}", why=why, next_step=f"fleetctl lab down --dir {directory}")


def _records(directory: Path) -> list[LabRecord]:
    found: LabRecord | None = None
    with contextlib.suppress(LabError):  # an unreadable record is a lost one
        found = read_record(directory)
    nameless = LabRecord(token="", kind=Kind.PROCESSES, network="", user="", python="")
    lost = [replace(nameless, kind=Kind.NAMESPACES, token=token) for token in tokens_of(directory)]
    # process hosts are found by their directory, so a record without a token finds them all
    records = [nameless, *lost] if found is None else [found, *lost]
    return [record for record in records if record.token or pids_of_lab(directory)]


def _remove_files(directory: Path) -> bool:
    paths = LabPaths(directory)
    for probe in directory.glob(f"{PROBE_PREFIX}*"):
        remove_directory(probe)
    existed = record_path(directory).exists() or paths.hosts.exists()
    remove_directory(paths.hosts)
    public = paths.identity.with_name(f"{paths.identity.name}.pub")
    unfinished = unfinished_record_path(directory)
    for file in (paths.inventory, paths.known_hosts, paths.identity, public, unfinished):
        file.unlink(missing_ok=True)
    # last, because it is what a repeated `down` goes by
    record_path(directory).unlink(missing_ok=True)
    return existed


def remove_empty_lab_directory(directory: Path) -> None:
    """Remove the directory of a lab that is gone, and `.fleetctl` around it, if empty."""
    with contextlib.suppress(OSError):
        directory.rmdir()
        if directory.parent.name == ".fleetctl":
            directory.parent.rmdir()
