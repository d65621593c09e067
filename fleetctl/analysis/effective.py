"""What really differs between two arms, from facts read back. Imports nothing heavy."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

UNSET = "(unset)"


class Kind(enum.StrEnum):
    """What kind of thing differs."""

    CHANGE = "change"
    PATCH = "patch"
    FLAG = "flag"
    OBSERVER = "observer"
    WORKLOAD = "workload"
    HOST_CLASS = "host class"
    IMAGE = "image"
    MIXED = "mixed"


class Difference(NamedTuple):
    """One thing that is not the same in both arms.

    Attributes:
        kind: what it is; MIXED when the processes of one arm do not even agree.
        name: patch, flag or observer.
        control: its value in the control.
        treatment: its value in the treatment.
    """

    kind: Kind
    name: str
    control: str
    treatment: str


@dataclass(frozen=True)
class Effective:
    """What one arm really ran with, as read back from the hosts.

    Attributes:
        patches: digest of each patch that is live, by the name reports use.
        processes: the flags that matter, of every serving process, from its own environment.
        observers: names of patches that only look and were on; flags are found by themselves.
        workload_sha256: digest of the workload.
        host_class: GPU, driver and the like, as one word.
        image: digest of what else the service is made of; empty where unknown.
    """

    patches: Mapping[str, str] = field(default_factory=dict)
    processes: tuple[Mapping[str, str], ...] = ()
    observers: frozenset[str] = frozenset()
    workload_sha256: str = ""
    host_class: str = ""
    image: str = ""

    def values(self, flag: str) -> frozenset[str]:
        """Return the values of a flag over all processes."""
        return frozenset(process.get(flag, UNSET) for process in self.processes or ({},))


def differences(
    control: Effective, treatment: Effective, *, observers: Collection[str] = ()
) -> tuple[Difference, ...]:
    """Return everything that differs; `observers` names the flags and patches that only look."""
    found = [
        *_patches(control, treatment, observers),
        *_flags(control, treatment, observers),
        *_observers(control, treatment),
    ]
    for kind, a, b in (
        (Kind.WORKLOAD, control.workload_sha256, treatment.workload_sha256),
        (Kind.HOST_CLASS, control.host_class, treatment.host_class),
        (Kind.IMAGE, control.image, treatment.image),
    ):
        if a != b:
            found.append(Difference(kind, str(kind), a, b))
    return tuple(found)


def _patches(
    control: Effective, treatment: Effective, observers: Collection[str]
) -> list[Difference]:
    names = sorted({*control.patches, *treatment.patches})
    pairs = [
        (name, control.patches.get(name, UNSET), treatment.patches.get(name, UNSET))
        for name in names
    ]
    return [
        Difference(Kind.OBSERVER if name in observers else Kind.PATCH, name, a, b)
        for name, a, b in pairs
        if a != b
    ]


def _flags(
    control: Effective, treatment: Effective, observers: Collection[str]
) -> list[Difference]:
    arms = (control, treatment)
    names = sorted({flag for arm in arms for process in arm.processes for flag in process})
    found = []
    for name in names:
        a, b = control.values(name), treatment.values(name)
        told = (" or ".join(sorted(a)), " or ".join(sorted(b)))
        if max(len(a), len(b)) > 1:
            found.append(Difference(Kind.MIXED, name, *told))
        elif a != b:
            kind = Kind.OBSERVER if name in observers else Kind.FLAG
            found.append(Difference(kind, name, *told))
    return found


def _observers(control: Effective, treatment: Effective) -> list[Difference]:
    return [
        Difference(
            Kind.OBSERVER,
            name,
            "on" if name in control.observers else "off",
            "on" if name in treatment.observers else "off",
        )
        for name in sorted(control.observers ^ treatment.observers)
    ]
