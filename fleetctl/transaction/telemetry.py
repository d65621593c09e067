"""What happened on a host beside a trial: restarts, kills, GPU errors, clocks and temperatures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuSample:
    """One GPU at one moment; None where the driver does not say.

    Attributes:
        index: as nvidia-smi counts.
        name: of the product.
        driver: version.
        sm_clock_mhz: of the processors.
        temperature_c: of the chip.
        memory_used_mib: by everybody.
        utilisation_percent: of the last sample period.
        throttle: bit mask of active throttle reasons, as printed.
    """

    index: int
    name: str
    driver: str
    sm_clock_mhz: float | None
    temperature_c: float | None
    memory_used_mib: float | None
    utilisation_percent: float | None
    throttle: str


@dataclass(frozen=True)
class Telemetry:
    """One look at a host beside a trial.

    Attributes:
        at_s: wall clock of the host.
        boot_id: changes at each boot.
        oom_kills: processes killed for memory since boot; None where the kernel does not say.
        xid_lines: NVIDIA driver errors in the kernel's log since the moment asked for.
        kernel_log_readable: whether that log could be read at all.
        gpus: one sample each; empty where there is no nvidia-smi.
        load_1min: of the whole machine.
        memory_available_bytes: of the whole machine.
    """

    at_s: float
    boot_id: str
    oom_kills: int | None
    xid_lines: tuple[str, ...]
    kernel_log_readable: bool
    gpus: tuple[GpuSample, ...]
    load_1min: float
    memory_available_bytes: int | None


@dataclass(frozen=True)
class LogLine:
    """One line of a service's log; pid 0 where the log does not say who wrote it."""

    pid: int
    at_s: float
    text: str


@dataclass(frozen=True)
class LogSlice:
    """Part of a service's log.

    Attributes:
        lines: oldest first.
        cut: earlier lines were left out to keep the answer short.
        problem: why nothing could be read.
    """

    lines: tuple[LogLine, ...]
    cut: bool = False
    problem: str = ""
