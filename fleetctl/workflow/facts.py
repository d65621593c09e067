"""One trial as the run remembers it: enough to judge again from the folder alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fleetctl.analysis.counts import ArmCounts, DrawnBlock, Run
from fleetctl.analysis.design import Design
from fleetctl.analysis.effective import Difference, Effective, differences
from fleetctl.analysis.guards import ArmFacts, Exposure, GuardFacts, OtherFailures
from fleetctl.analysis.history import AaRecord
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.metric import Metric
from fleetctl.trial.classes import OutcomeClass, load_classes
from fleetctl.trial.metric import FINE, bad_sessions

ARMS = ("control", "treatment")
# 48 bits tell two files of one experiment apart, and people can read them
_SHOWN_DIGITS = 12
# a clock that is disciplined moves by less
_SHOWN_STEP_S = 1.0


@dataclass(frozen=True)
class TrialFacts:
    """What one trial says, and what has to be known about how it came to be.

    Attributes:
        trial: its folder below the run, such as `trials/003-treatment`.
        block: the block of the order inside which its arm was drawn; empty where it was not.
        block_runs: runs drawn in that block.
        run_index: number of the run in its arm; run k of both arms sends the same requests.
        boot: host boot and invocation of the service: trials that share it are one cluster.
        corrupted: sessions with a corrupt outcome.
        counted: sessions that say something about the model.
        infra: sessions that don't.
        planned: sessions asked for.
        counts: every outcome class; empty where only the corrupted sessions are known.
        line: the line people know, of what the experiment counts.
        exposure: `concurrency` on average; `tokens`, `rounds`, `in_flight_s` per session; `batch`
            in the server, where it tells.
        lag_p99_ms: of the client's event loop, where it was ours.
        concurrency_share: share of the wanted concurrency that was reached, likewise.
        patches: module or path -> sha256 that is live.
        processes: flags that matter, per serving process, read back.
        unproven: what could not be shown to run as asked.
        disturbances: restarts, memory kills, GPU errors while it ran.
        missed_triggers: what the fault needs and the load never reached.
        void_because: faults of the client, which make the trial unusable.
        foreign_load: by what the server said that somebody else asked it; None where it said
            nothing, or where nobody knows what the load's own program sent.
        sequence: how many trials of the run were begun before it; None where nobody counted.
        program_exit: exit code of the load's own program where it reported nothing; else None.
    """

    trial: str
    arm: str
    host: str
    host_class: str
    run_index: int
    block: str
    block_runs: int
    started_s: float
    wall_s: float
    boot: str
    corrupted: int
    counted: int
    infra: int
    planned: int
    counts: Mapping[str, int]
    line: str
    exposure: Mapping[str, float | None]
    lag_p99_ms: float | None
    concurrency_share: float | None
    patches: Mapping[str, str]
    processes: tuple[Mapping[str, str], ...]
    workload_sha256: str
    unproven: tuple[str, ...] = ()
    disturbances: tuple[str, ...] = ()
    missed_triggers: tuple[str, ...] = ()
    void_because: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    foreign_load: tuple[str, ...] | None = None
    sequence: int | None = None
    program_exit: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TrialFacts:
        """Return the facts that `to_json` gave; lists become tuples again."""
        fields: dict[str, Any] = {
            name: tuple(item) if isinstance(item, list) else item for name, item in value.items()
        }
        return cls(**fields)


def in_order(facts: Iterable[TrialFacts]) -> tuple[TrialFacts, ...]:
    """Return trials as they were begun: as the run counted them, whatever its clock said.

    Where nobody counted, or several machines did, each for itself, the clock decides.
    """
    made = tuple(facts)
    return tuple(sorted(made, key=_sequence_of if _are_counted(made) else _started_of))


def clock_steps(facts: Iterable[TrialFacts]) -> tuple[str, ...]:
    """Return where the clock of this machine was set back while the trials were made."""
    made = in_order(facts)
    return tuple(
        f"the clock here was set back by {back_s:.0f} s or more between {before.trial} and "
        f"{after.trial}; the order of the trials does not come from it"
        for before, after in itertools.pairwise(made)
        if (back_s := before.started_s - after.started_s) >= _SHOWN_STEP_S
    )


def _are_counted(facts: Sequence[TrialFacts]) -> bool:
    numbers = {fact.sequence for fact in facts}
    return None not in numbers and len(numbers) == len(facts)


def _sequence_of(fact: TrialFacts) -> int:
    return fact.sequence or 0


def _started_of(fact: TrialFacts) -> float:
    return fact.started_s


def bad_of(fact: TrialFacts, metric: Metric) -> int | None:
    """Return the sessions of a trial that a metric counts; None where nobody knows them."""
    return bad_sessions(metric, corrupted=fact.corrupted, counted=fact.counted, counts=fact.counts)


def not_countable(fact: TrialFacts, metric: Metric) -> tuple[str, ...]:
    """Return why a trial can't be counted by a metric; empty where it can."""
    if bad_of(fact, metric) is not None:
        return ()
    return (
        "the classes of its sessions are not known, or don't add up, so nobody knows how many"
        ' failed: metric = "corruption" can be judged',
    )


def undisturbed(facts: Iterable[TrialFacts]) -> tuple[TrialFacts, ...]:
    """Return the trials whose spread says something about the service, and not about an accident.

    A restart, a spoilt client or an unproven arm moves the rate of a run by itself.
    """
    return tuple(
        fact for fact in facts if not (fact.disturbances or fact.void_because or fact.unproven)
    )


def run_of(fact: TrialFacts, metric: Metric, position: int | None = None) -> Run:
    """Return the counts of a trial; no session counts where the metric can't count them.

    Args:
        fact: the trial.
        metric: what is bad.
        position: its place in the order over both arms.
    """
    bad = bad_of(fact, metric)
    return Run(
        bad=bad or 0,
        sessions=0 if bad is None else fact.counted,
        infra=fact.infra,
        trial=fact.trial,
        boot=fact.boot,
        position=position,
        block=DrawnBlock(fact.block, fact.block_runs) if fact.block else None,
        host=fact.host,
    )


def arm_counts(facts: Sequence[TrialFacts], arm: str, metric: Metric) -> ArmCounts:
    """Return one arm's runs, each with its place in the order over both arms."""
    runs = [
        run_of(fact, metric, position)
        for position, fact in enumerate(in_order(facts))
        if fact.arm == arm
    ]
    return ArmCounts(arm, tuple(runs))


def aa_record(
    name: str, host_class: str, workload_sha256: str, facts: Sequence[TrialFacts]
) -> AaRecord:
    """Return what A/A runs teach, whatever arm they are of: by each metric that can count them."""
    same = [replace(fact, arm="control") for fact in undisturbed(facts)]
    is_known = all(bad_of(fact, "failures") is not None for fact in same)
    return AaRecord(
        name,
        host_class,
        workload_sha256,
        arm_counts(same, "control", "corruption"),
        minutes_per_run(facts),
        arm_counts(same, "control", "failures") if is_known else None,
    )


def minutes_per_run(facts: Sequence[TrialFacts]) -> float | None:
    """Return the host time of one run, restarts between runs included; None where unknown."""
    if clock_steps(facts):
        return None
    sites: dict[str, list[TrialFacts]] = {}
    for fact in facts:
        sites.setdefault(fact.host, []).append(fact)
    took_s = sum(
        max(f.started_s + f.wall_s for f in made) - min(f.started_s for f in made)
        for made in sites.values()
    )
    return took_s / len(facts) / 60 if facts else None


def design_of(experiment: Experiment, *, post_hoc: bool = False) -> Design:
    """Return what the spec declared before the first run."""
    verdict, trials = experiment.verdict, experiment.trials
    return Design(
        target=verdict.target,
        margin=verdict.margin,
        alpha=verdict.alpha,
        runs=trials.runs,
        looks=trials.looks,
        post_hoc=post_hoc,
        metric=verdict.metric,
    )


def guard_facts(
    experiment: Experiment,
    facts: Sequence[TrialFacts],
    *,
    given_up_runs: int,
    perturbing: Iterable[str],
    deviation: str | None = None,
) -> GuardFacts:
    """Return everything beside the counts that decides whether the arms may be compared.

    Args:
        experiment: what was declared.
        facts: the trials.
        given_up_runs: planned runs per arm that will not be made any more.
        perturbing: observers that are known to move the rate.
        deviation: how the executed order differs from the planned one; see `order_deviation`.
    """
    observers = tuple(observer.name for observer in experiment.observer)
    ordered, metric = in_order(facts), experiment.verdict.metric
    return GuardFacts(
        control=_arm_facts([f for f in ordered if f.arm == "control"], metric),
        treatment=_arm_facts([f for f in ordered if f.arm == "treatment"], metric),
        differences=effective_differences(ordered, observers),
        observers=_on_in_both(experiment, ordered),
        perturbing=tuple(perturbing),
        orders=tuple(executed_orders(ordered).values()),
        order_deviation=deviation,
        given_up_runs=given_up_runs,
        forced=frozenset(experiment.experiment.forced),
    )


def executed_orders(facts: Sequence[TrialFacts]) -> dict[str, str]:
    """Return the executed order on each site as people write it; A is the control."""
    letters: dict[str, str] = {}
    for fact in in_order(facts):
        letters[fact.host] = letters.get(fact.host, "") + "AB"[ARMS.index(fact.arm)]
    return letters


def order_deviation(planned: Mapping[str, str], facts: Sequence[TrialFacts]) -> str | None:
    """Return how the trials so far left the planned order; None where no plan is known.

    A run that ended early kept its order as far as it went.
    """
    if not planned:
        return None
    return "; ".join(
        f"{site} was to run {planned.get(site) or 'nothing'} and ran {letters}"
        for site, letters in executed_orders(facts).items()
        if not planned.get(site, "").startswith(letters)
    )


def effective_differences(
    facts: Sequence[TrialFacts], observers: Sequence[str]
) -> tuple[Difference, ...] | None:
    """Return in what the arms really differed, as read back; None until both have run."""
    arms = [[fact for fact in facts if fact.arm == arm] for arm in ARMS]
    if not all(arms):
        return None
    return differences(_effective(arms[0]), _effective(arms[1]), observers=observers)


def _effective(facts: Sequence[TrialFacts]) -> Effective:
    return Effective(
        patches={name: sha[:_SHOWN_DIGITS] for fact in facts for name, sha in fact.patches.items()},
        processes=tuple(process for fact in facts for process in fact.processes),
        workload_sha256=" ".join(sorted({fact.workload_sha256 for fact in facts})),
        host_class=" ".join(sorted({fact.host_class for fact in facts})),
    )


def _on_in_both(experiment: Experiment, facts: Sequence[TrialFacts]) -> tuple[str, ...]:
    """Return the observing flags that were on in every process of every trial."""
    found = []
    for observer in experiment.observer:
        values = {
            process.get(observer.flag or "", observer.off)
            for fact in facts
            for process in fact.processes
        }
        if observer.flag is not None and values and observer.off not in values:
            found.append(observer.name)
    return tuple(found)


def _arm_facts(facts: Sequence[TrialFacts], metric: Metric) -> ArmFacts:
    return ArmFacts(
        unproven=_labelled(facts, "unproven"),
        disturbances=_labelled(facts, "disturbances")
        + _labelled(facts, "void_because")
        + tuple(f"{fact.trial}: {text}" for fact in facts for text in not_countable(fact, metric)),
        missed_triggers=_labelled(facts, "missed_triggers"),
        exposure=Exposure(
            concurrency=_mean(facts, "concurrency"),
            tokens=_mean(facts, "tokens"),
            rounds=_mean(facts, "rounds"),
            in_flight_s=_mean(facts, "in_flight_s"),
            batch=_mean(facts, "batch"),
        ),
        planned_sessions=sum(fact.planned for fact in facts),
        client_lag_p99_ms=max(
            (f.lag_p99_ms for f in facts if f.lag_p99_ms is not None), default=None
        ),
        achieved_concurrency=min(
            (f.concurrency_share for f in facts if f.concurrency_share is not None), default=None
        ),
        foreign_load=_foreign_load(facts),
        other_failures=_other_failures(facts) if metric == "corruption" else None,
    )


def _other_failures(facts: Sequence[TrialFacts]) -> OtherFailures | None:
    """Return the sessions that count, are not corrupt and did not end as asked.

    None where nobody knows: a program of the user's own may call further classes corrupt, and a
    trial may count other sessions than its classes have.
    """
    classes = load_classes()
    fine = {*FINE, *classes.corrupt, *classes.uncounted}
    failed = [outcome for outcome in OutcomeClass if outcome not in fine]
    if not facts or any(
        fact.corrupted != _sum(fact, classes.corrupt)
        or fact.corrupted + _sum(fact, failed) > fact.counted
        for fact in facts
    ):
        return None
    runs = (
        Run(_sum(fact, failed), fact.counted - fact.corrupted, trial=fact.trial, boot=fact.boot)
        for fact in facts
    )
    return OtherFailures(
        ArmCounts(facts[0].arm, tuple(runs)),
        {str(name): sum(fact.counts.get(name, 0) for fact in facts) for name in failed},
    )


def _sum(fact: TrialFacts, classes: Iterable[OutcomeClass]) -> int:
    return sum(fact.counts.get(name, 0) for name in classes)


def _foreign_load(facts: Sequence[TrialFacts]) -> tuple[str, ...] | None:
    """Return what servers said of others' requests; None where none of them could tell."""
    told = [fact for fact in facts if fact.foreign_load is not None]
    if not told:
        return None
    return tuple(f"{fact.trial}: {text}" for fact in told for text in fact.foreign_load or ())


def _labelled(facts: Sequence[TrialFacts], attribute: str) -> tuple[str, ...]:
    return tuple(f"{fact.trial}: {text}" for fact in facts for text in getattr(fact, attribute))


def _mean(facts: Sequence[TrialFacts], name: str) -> float | None:
    values = [value for fact in facts if (value := fact.exposure.get(name)) is not None]
    return sum(values) / len(values) if values else None
