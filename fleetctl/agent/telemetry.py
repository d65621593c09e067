"""Look at what could disturb a trial, without disturbing it."""

from __future__ import annotations

import errno
import os
import subprocess
import time

from fleetctl.transaction.telemetry import GpuSample, Telemetry

_FIELDS = (
    "index,name,driver_version,clocks.sm,temperature.gpu,memory.used,utilization.gpu,"
    "clocks_throttle_reasons.active"
)
_XID = "NVRM: Xid"
_KMSG_RECORD_BYTES = 8192


def sample(since_s: float) -> Telemetry:
    """Return one look at this host; driver errors count from `since_s` of its wall clock."""
    xid_lines, readable = _xid_lines(since_s)
    return Telemetry(
        at_s=time.time(),
        boot_id=_read("/proc/sys/kernel/random/boot_id").strip(),
        oom_kills=_counter("/proc/vmstat", "oom_kill"),
        xid_lines=xid_lines,
        kernel_log_readable=readable,
        gpus=_gpus(),
        load_1min=os.getloadavg()[0],
        memory_available_bytes=_available_bytes(),
    )


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


def _counter(path: str, name: str) -> int | None:
    for line in _read(path).splitlines():
        words = line.split()
        if words and words[0].rstrip(":") == name:
            return int(words[1])
    return None


def _available_bytes() -> int | None:
    kib = _counter("/proc/meminfo", "MemAvailable")
    return None if kib is None else kib * 1024


def _xid_lines(since_s: float) -> tuple[tuple[str, ...], bool]:
    """Return the driver errors since a moment, and whether the kernel's log could be read."""
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return (), False
    boot_s = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    found = []
    try:
        while record := _next_record(log):
            head, _, text = record.partition(";")
            at_s = boot_s + int(head.split(",")[2]) / 1e6
            if _XID in text and at_s >= since_s:
                found.append(text.splitlines()[0])
    finally:
        os.close(log)
    return tuple(found), True


def _next_record(log: int) -> str:
    """Return the next record, or nothing at the end; overwritten records are skipped."""
    while True:
        record, is_overwritten = _read_record(log)
        if not is_overwritten:
            return record


def _read_record(log: int) -> tuple[str, bool]:
    try:
        return os.read(log, _KMSG_RECORD_BYTES).decode("utf-8", "replace"), False
    except OSError as error:
        return "", error.errno == errno.EPIPE


def _gpus() -> tuple[GpuSample, ...]:
    argv = ["nvidia-smi", f"--query-gpu={_FIELDS}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=20.0, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else []
    return tuple(sample for row in rows if (sample := parse_gpu(row)) is not None)


def parse_gpu(row: str) -> GpuSample | None:
    """Return the sample in one line of nvidia-smi's CSV, or None for anything else."""
    words = [word.strip() for word in row.split(",")]
    if len(words) != _FIELDS.count(",") + 1 or not words[0].isdigit():
        return None
    clock, temperature, memory, utilisation = (_number(word) for word in words[3:7])
    return GpuSample(
        int(words[0]), words[1], words[2], clock, temperature, memory, utilisation, words[7]
    )


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
