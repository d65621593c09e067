"""What a run has to do, whatever it is for: arms to put on sites, and the workload they get."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.spec.arms import Arm, find_beside
from fleetctl.spec.experiment import Experiment, Trials, Workload
from fleetctl.spec.matrix import Matrix
from fleetctl.spec.metric import Metric
from fleetctl.spec.ready import Ready


@dataclass(frozen=True)
class Job:
    """Arms and a workload.

    Attributes:
        kind: `experiment`, `matrix` or `aa`.
        purpose: what leases say.
        files: the spec and its payload as they were, by path below the run's `spec/`.
        flags: that arms to come may set; every trial looks at them, so that all say the same.
        metric: what is counted.
    """

    kind: str
    purpose: str
    target: str
    arms: tuple[Arm, ...]
    workload: Workload
    trials: Trials
    ready: Ready
    lease_s: float
    files: Mapping[str, bytes] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    metric: Metric = "corruption"


def job_of(
    spec: Experiment | Matrix,
    path: Path,
    arms: Iterable[Arm],
    *,
    kind: str,
    beside: Iterable[str] = (),
) -> Job:
    """Return the job of a spec; `beside` names further specs it refers to."""
    wanted = tuple(arms)
    return Job(
        kind=kind,
        purpose=spec.experiment.name,
        target=spec.experiment.target,
        arms=wanted,
        workload=spec.workload,
        trials=spec.trials,
        ready=spec.ready,
        lease_s=spec.lease,
        files=dict(_files(path, wanted, beside)),
        metric=spec.verdict.metric,
    )


def _files(path: Path, arms: Iterable[Arm], beside: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    yield path.name, path.read_bytes()
    for name in beside:
        other = find_beside(path, name)
        yield other.name, other.read_bytes()
    for arm in arms:
        for content in arm.patches:
            source = content.patch.source.rstrip("/")
            for name, data in content.files.items():
                yield f"{source}/{name}" if name else source, data
