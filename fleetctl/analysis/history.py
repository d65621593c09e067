"""What earlier A/A runs say about dispersion. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fleetctl.analysis.counts import ArmCounts, Run, pearson
from fleetctl.errors import InputError

SCHEMA = "fleetctl.history/1"


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


def records_to_json(records: Iterable[AaRecord]) -> dict[str, Any]:
    """Return records as plain values, as the store and `--history` files hold them."""
    return {
        "schema": SCHEMA,
        "records": [
            {
                "name": record.name,
                "host_class": record.host_class,
                "workload_sha256": record.workload_sha256,
                "runs": [
                    {"bad": run.bad, "sessions": run.sessions, "boot": run.boot, "trial": run.trial}
                    for run in record.counts.runs
                ],
            }
            for record in records
        ],
    }


def records_from_json(value: Any) -> tuple[AaRecord, ...]:  # noqa: ANN401 - JSON of any shape comes in
    """Return the records of a history file's values.

    Raises:
        InputError: the value has not the form that `records_to_json` gives; says where.
    """
    if not isinstance(value, dict) or value.get("schema") != SCHEMA:
        raise _malformed("the file", f'it has no "schema": "{SCHEMA}"')
    records = value.get("records")
    if not isinstance(records, list):
        raise _malformed("`records`", "it is not a list")
    return tuple(_record(f"records[{i}]", record) for i, record in enumerate(records))


def _record(where: str, value: Any) -> AaRecord:  # noqa: ANN401 - JSON of any shape comes in
    try:
        runs = tuple(
            Run(
                bad=_whole(run["bad"]),
                sessions=_whole(run["sessions"]),
                boot=run.get("boot"),
                trial=run.get("trial", ""),
            )
            for run in value["runs"]
        )
        name = str(value["name"])
        return AaRecord(
            name, str(value["host_class"]), str(value["workload_sha256"]), ArmCounts(name, runs)
        )
    except InputError as error:
        raise _malformed(where, error.what) from error
    except KeyError as error:
        raise _malformed(where, f"it has no {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _malformed(where, str(error)) from error


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _malformed(where: str, why: str) -> InputError:
    return InputError(
        f"the A/A history is malformed at {where}",
        why=why,
        next_step="give the file that `fleetctl aa` wrote",
    )
