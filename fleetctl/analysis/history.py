"""What earlier A/A runs say about dispersion. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetctl.analysis.counts import ArmCounts, pearson


@dataclass(frozen=True)
class Dispersion:
    """Pooled dispersion of stored A/A runs.

    Attributes:
        phi: Pearson dispersion; 1 means sessions as good as independent.
        df: degrees of freedom behind it.
        records: names of the records it was pooled from.
    """

    phi: float
    df: int
    records: tuple[str, ...] = ()


@dataclass(frozen=True)
class AaRecord:
    """Runs of one unchanged arm, kept for the dispersion they show.

    Attributes:
        name: how reports name the record.
        host_class: GPU, driver and image of the host they ran on, as one word.
        workload_sha256: digest of the workload.
        counts: the runs.
    """

    name: str
    host_class: str
    workload_sha256: str
    counts: ArmCounts


def pool(
    records: Iterable[AaRecord], *, host_class: str, workload_sha256: str
) -> Dispersion | None:
    """Return the dispersion of the records of this host class and workload; None without any.

    Each record is compared with its own rate only, so records of different days and builds may
    be pooled. A record in which nothing or everything was bad is left out: it says nothing about
    dispersion, and its degrees of freedom would dilute what the others say.
    """
    x2_sum, df_sum, names = 0.0, 0, []
    for record in records:
        if (record.host_class, record.workload_sha256) != (host_class, workload_sha256):
            continue
        x2, df = pearson(record.counts.clusters)
        if df and 0 < record.counts.bad < record.counts.sessions:
            x2_sum, df_sum = x2_sum + x2, df_sum + df
            names.append(record.name)
    return Dispersion(x2_sum / df_sum, df_sum, tuple(names)) if df_sum else None
