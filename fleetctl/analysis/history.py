"""What earlier A/A runs say about dispersion. Imports nothing heavy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fleetctl.analysis.counts import ArmCounts, Run, pearson
from fleetctl.errors import InputError
from fleetctl.spec.metric import Metric

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
        counts: the runs, with their corrupted sessions.
        minutes_per_run: host time that a run took, restart included; None where nobody noted it.
        failures: the same runs with their failed sessions; None where nobody counted those.
    """

    name: str
    host_class: str
    workload_sha256: str
    counts: ArmCounts
    minutes_per_run: float | None = None
    failures: ArmCounts | None = None

    def counts_of(self, metric: Metric) -> ArmCounts | None:
        """Return the runs as a metric counts them; None where nobody counted that."""
        return self.counts if metric == "corruption" else self.failures


def pool(
    records: Iterable[AaRecord],
    *,
    host_class: str,
    workload_sha256: str,
    metric: Metric = "corruption",
) -> Dispersion | None:
    """Return the dispersion of the records of this host class and workload; None without any.

    Each record is compared with its own rate only, so records of different days and builds may
    be pooled. A record in which nothing or everything was bad is left out: it says nothing about
    dispersion, and its degrees of freedom would dilute what the others say. Boots may share
    their luck in one way of failing and not in another, so each metric has its own.
    """
    x2_sum, df_sum, names = 0.0, 0, []
    for record in records:
        if (record.host_class, record.workload_sha256) != (host_class, workload_sha256):
            continue
        counts = record.counts_of(metric)
        if counts is None or not 0 < counts.bad < counts.sessions:
            continue
        x2, df = pearson(counts.clusters)
        if df:
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
            {
                "bad": run.bad,
                **({} if failed is None else {"failed": failed}),
                "sessions": run.sessions,
                "boot": run.boot,
                "trial": run.trial,
            }
            for run, failed in zip(record.counts.runs, _failed(record), strict=True)
        ],
    }


def _failed(record: AaRecord) -> list[int | None]:
    """Return the failed sessions of each run of a record."""
    if record.failures is None:
        return [None] * len(record.counts.runs)
    return [run.bad for run in record.failures.runs]


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
        runs = tuple(_run(run, "bad") for run in value["runs"])
        has_failures = bool(runs) and all("failed" in run for run in value["runs"])
        failed = tuple(_run(run, "failed") for run in value["runs"] if has_failures)
        name, minutes = str(value["name"]), value.get("minutes_per_run")
        return AaRecord(
            name,
            str(value["host_class"]),
            str(value["workload_sha256"]),
            ArmCounts(name, runs),
            None if minutes is None else float(minutes),
            ArmCounts(name, failed) if has_failures else None,
        )
    except InputError as error:
        raise _malformed(where, error.what) from error
    except KeyError as error:
        raise _malformed(where, f"it has no {json.dumps(error.args[0])}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _malformed(where, str(error)) from error


def _run(run: Mapping[str, Any], counted: str) -> Run:
    return Run(
        bad=_whole(run[counted]),
        sessions=_whole(run["sessions"]),
        boot=run.get("boot"),
        trial=run.get("trial", ""),
    )


def _check_schema(schema: object) -> None:
    if schema != SCHEMA:
        raise ValueError(f"its schema is {json.dumps(schema)}, not {json.dumps(SCHEMA)}")


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{json.dumps(value)} is not a whole number")
    return value


def _malformed(where: str, why: str) -> InputError:
    return InputError(
        f"the A/A history is malformed at {where}",
        why=why,
        next_step="give the file that `fleetctl aa` wrote",
    )
