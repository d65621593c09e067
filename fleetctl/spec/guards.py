"""Guards of experiment design that need no host: what a spec may not ask without saying so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetctl.errors import InputError
from fleetctl.spec.arms import Arm, Arms
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.quoted import quoted


@dataclass(frozen=True)
class Difference:
    """One thing in which the arms differ, as the spec declares it.

    Attributes:
        kind: `patch` or `flag`.
        name: the patch's target or the flag's name.
        control: what the control has; empty for "as found".
        treatment: what the treatment has; empty for "as found".
        observer: it only looks, says the spec.
    """

    kind: str
    name: str
    control: str
    treatment: str
    observer: bool = False

    def __str__(self) -> str:
        before, after = self.control or "as found", self.treatment or "as found"
        return f"{self.kind} {self.name}: {before} -> {after}"


@dataclass(frozen=True)
class Guards:
    """What the guards say.

    Attributes:
        differences: between the arms, as declared.
        labels: what report and verdict must carry, such as `confounded`.
        warnings: what the author should know before a host is touched.
    """

    differences: tuple[Difference, ...]
    labels: tuple[str, ...]
    warnings: tuple[str, ...]


def declared_differences(arms: Arms, observers: Iterable[str]) -> tuple[Difference, ...]:
    """Return in what the arms differ, patch by patch and flag by flag."""
    looking = set(observers)
    before, after = _declared(arms.control), _declared(arms.treatment)
    keys = list(dict.fromkeys([*before, *after]))
    return tuple(
        Difference(*key, before.get(key, ""), after.get(key, ""), key[1] in looking)
        for key in keys
        if before.get(key) != after.get(key)
    )


def check_design(experiment: Experiment, arms: Arms) -> Guards:
    """Return what the guards say of an experiment.

    Raises:
        InputError: it changes several things at once, or runs its arms in blocks, without
            `forced` saying that this is meant.
    """
    forced = experiment.experiment.forced
    differences = declared_differences(arms, [observer.name for observer in experiment.observer])
    labels: list[str] = []
    warnings: list[str] = []
    if len(differences) > 1:
        _require(
            "confounded" in forced,
            "the arms differ in more than one thing",
            "\n       ".join(str(difference) for difference in differences),
            'vary one thing at a time, or write forced = ["confounded"] under [experiment]: '
            "the verdict will then say `confounded`",
        )
        labels.append("confounded")
    if not differences and arms.history is None:
        warnings.append("the arms are the same: this is an A/A experiment")
    if experiment.trials.order == "blocks":
        _require(
            "blocks" in forced,
            "the arms would run in blocks",
            'order = "blocks" runs AAABBB: heat, load and drift look like an effect',
            'use order = "interleaved", or write forced = ["blocks"] under [experiment]',
        )
        labels.append("blocks")
    if arms.history is not None:
        labels.append("historical_control")
        warnings.append(
            "the control was measured on another day: whatever changed since counts as the "
            "treatment, and the verdict says so"
        )
    warnings += [
        f"the arms differ in the observer {difference.name}: what looks may also disturb"
        for difference in differences
        if difference.observer
    ]
    return Guards(differences, tuple(labels), tuple(warnings))


def _declared(arm: Arm) -> dict[tuple[str, str], str]:
    found = {
        ("patch", content.patch.target): f"{content.patch.source} ({content.digest[:12]})"
        for content in arm.patches
    }
    found |= {
        ("flag", name): "unset" if value is None else quoted(value)
        for name, value in arm.flags.items()
    }
    return found


def _require(holds: bool, what: str, why: str, next_step: str) -> None:  # noqa: FBT001 - the claim comes first
    if not holds:
        raise InputError(what, why=why, next_step=next_step)
