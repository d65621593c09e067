"""What a design can't decide, however clear its trials are: said before any host is touched.

The real judge is asked about the clearest outcomes that there can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleetctl.analysis.counts import ArmCounts, Run
from fleetctl.analysis.design import ARM_NAMES, Slot
from fleetctl.analysis.guards import GuardFacts
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import Judgement
from fleetctl.analysis.verdict import judge
from fleetctl.report.numbers import count
from fleetctl.spec.experiment import Experiment
from fleetctl.workflow.facts import design_of

# share of bad sessions in control and treatment; every verdict is the clearest at one of them, and
# each control shows the fault, without which nothing is judged
_CLEAREST = ((1.0, 0.0), (0.5, 1.0), (1.0, 1.0), (1.0, 0.5))
_ALWAYS = ("inconclusive", "invalid")


def undecidable(
    experiment: Experiment, dealt: Mapping[str, Sequence[Slot]], history: Dispersion | None
) -> list[str]:
    """Return what the author of a design should know before it is run; nothing where all is well.

    Args:
        experiment: what was declared.
        dealt: the planned trials of each site.
        history: what A/A runs showed of the spread between runs.
    """
    planned = _Planned(experiment, dealt, history)
    return [*_ends(planned), *_undeclared(planned)]


@dataclass(frozen=True)
class _Planned:
    experiment: Experiment
    dealt: Mapping[str, Sequence[Slot]]
    history: Dispersion | None

    def judged(self, runs: int) -> Iterator[Judgement]:
        """Yield the verdicts on the clearest outcomes after that many runs per arm."""
        historical = self.experiment.control.history
        for bad in _CLEAREST:
            control, treatment = (
                self._arm(name, share, runs)
                for name, share in zip(ARM_NAMES.values(), bad, strict=True)
            )
            if historical is not None:
                sessions = historical.sessions
                control = ArmCounts("control", (Run(math.ceil(bad[0] * sessions), sessions),))
            yield judge(
                control,
                treatment,
                design=design_of(self.experiment),
                guards=GuardFacts(historical_control=historical is not None),
                history=self.history,
            )

    def _arm(self, arm: str, share: float, runs: int) -> ArmCounts:
        """Return the first runs of an arm, as if that share of the sessions of each was bad."""
        sessions = self.experiment.workload.sessions
        bad = math.ceil(share * sessions)
        made = sorted(self._made(), key=lambda one: (one[0].position, one[1]))
        return ArmCounts(
            arm,
            tuple(
                Run(bad, sessions, boot=boot, position=place, block=slot.block)
                for place, (slot, _, boot) in enumerate(made)
                if slot.arm == arm
            )[:runs],
        )

    def _made(self) -> Iterator[tuple[Slot, str, str]]:
        """Yield every slot with its site and the boot that serves it."""
        for site, slots in self.dealt.items():
            boot, before = 0, ""
            for slot in slots:
                boot += self.experiment.trials.boot_per_run or slot.arm != before
                before = slot.arm
                yield slot, site, f"{site} {boot}"


def _ends(planned: _Planned) -> Iterator[str]:
    """Yield which declared looks, the planned end among them, can give no verdict."""
    trials, expected = planned.experiment.trials, planned.experiment.verdict.expect
    declared = design_of(planned.experiment).declared_looks
    idle = [n for n in declared if not any(one.word.is_decided for one in planned.judged(n))]
    runs = count(trials.runs, "run")
    if idle == [*declared]:
        yield (
            f"this design can never decide: with {runs} of"
            f" {count(planned.experiment.workload.sessions, 'session')} per arm even the clearest"
            " outcome is inconclusive; more `runs` help, and A/A runs may (`fleetctl aa`)"
        )
    elif idle:
        yield (
            f"looks at {', '.join(map(str, idle))} of the {runs} per arm can never decide, however"
            " clear the outcome is"
        )
    elif expected is not None and expected not in _ALWAYS and not _comes_true(planned, expected):
        yield (
            f'`expect = "{expected}"` can never come true: even the clearest outcome of {runs} per'
            " arm is no proof of it"
        )


def _comes_true(planned: _Planned, expected: str) -> bool:
    return any(one.word == expected for one in planned.judged(planned.experiment.trials.runs))


def _undeclared(planned: _Planned) -> Iterator[str]:
    """Yield where the e-value, which alone may decide at an undeclared look, can't get there."""
    if planned.experiment.trials.order != "randomised":
        return
    needed = 1 / design_of(planned.experiment).alpha
    most = 1.0
    for judgement in planned.judged(planned.experiment.trials.runs):
        if judgement.numbers is not None and judgement.numbers.evalue is not None:
            most = max(most, judgement.numbers.evalue)
        if most >= needed:
            return
    yield (
        "a look that was not declared, as after a stop, can never decide: the e-value of this order"
        f" reaches {most:.3g} at most, and has to reach {needed:g}; more `runs` make more random"
        " blocks"
    )
