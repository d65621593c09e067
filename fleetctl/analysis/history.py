"""What earlier A/A runs say about dispersion. Imports nothing heavy."""

from __future__ import annotations

import json
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
        minutes_per_run: host time that a run took, restart included; None where nobody noted it.
    """

    name: str
    host_class: str
    workload_sha256: str
    counts: ArmCounts
    minutes_per_run: float | None = None


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


def minutes_per_run(
    records: Iterable[AaRecord], *, host_class: str, workload_sha256: str
) -> float | None:
    """Return the mean host time of the runs of this host class and workload; None if unknown."""
    timed = [
        (record.minutes_per_run, len(record.counts.runs))
        for record in records
        if (record.host_class, record.workload_sha256) == (host_class, workload_sha256)
        and record.minutes_per_run is not None
    ]
    runs = sum(count for _, count in timed)
    return sum(minutes * count for minutes, count in timed) / runs if runs else None


def record_to_json(record: AaRecord) -> dict[str, Any]:
    """Return a record as plain values: one line of the history file."""
    return {
        "schema": SCHEMA,
        "name": record.name,
        "host_class": record.host_class,
        "workload_sha256": record.workload_sha256,
        "minutes_per_run": record.minutes_per_run,
        "runs": [
            {"bad": run.bad, "sessions": run.sessions, "boot": run.boot, "trial": run.trial}
            for run in record.counts.runs
        ],
    }


def records_from_text(text: str) -> tuple[AaRecord, ...]:
    """Return the records of a history file, one JSON object a line.

    Raises:
        InputError: a line is no record; says which one.
    """
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise _malformed(f"line {number}", str(error)) from error
            found.append(record_from_json(value, f"line {number}"))
    return tuple(found)


def record_from_json(value: Any, where: str = "a line") -> AaRecord:  # noqa: ANN401 - JSON of any shape comes in
    """Return the record that `record_to_json` wrote.

    Raises:
        InputError: the value is no record; `where` says which one.
    """
    try:
        _check_schema(value.get("schema"))
        runs = tuple(
            Run(
                bad=_whole(run["bad"]),
                sessions=_whole(run["sessions"]),
                boot=run.get("boot"),
                trial=run.get("trial", ""),
            )
            for run in value["runs"]
        )
        name, minutes = str(value["name"]), value.get("minutes_per_run")
        return AaRecord(
            name,
            str(value["host_class"]),
            str(value["workload_sha256"]),
            ArmCounts(name, runs),
            None if minutes is None else float(minutes),
        )
    except InputError as error:
        raise _malformed(where, error.what) from error
    except KeyError as error:
        raise _malformed(where, f"it has no {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _malformed(where, str(error)) from error


def _check_schema(schema: object) -> None:
    if schema != SCHEMA:
        raise ValueError(f"its schema is {schema!r}, not {SCHEMA}")


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
