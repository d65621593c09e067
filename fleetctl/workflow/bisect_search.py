"""A bisection's questions and its report: what is asked next, and what the answers say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.analysis.bisection import Worlds
from fleetctl.analysis.bisection_search import (
    BisectDesign,
    End,
    Ending,
    Next,
    SearchRun,
    belief_of,
    next_step,
    rates_by_point,
)
from fleetctl.analysis.effective import Difference, Kind
from fleetctl.analysis.judgement import Judgement
from fleetctl.analysis.verdict import judge
from fleetctl.report.bisect import BisectReport
from fleetctl.spec.bisect import Bisect
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.metric import Metric
from fleetctl.store.history import History
from fleetctl.store.run_folder import RunFolder
from fleetctl.store.search_log import Answered, SearchLog
from fleetctl.workflow.as_found import notes_of
from fleetctl.workflow.bisect import AskedBisect, build_name, list_of
from fleetctl.workflow.bisect_ground import Build
from fleetctl.workflow.bisect_known import known_at_start, rate_priors
from fleetctl.workflow.bisect_loop import Key, Question, run_of_answer
from fleetctl.workflow.bisect_run import skipped
from fleetctl.workflow.campaign_site import HeldSite
from fleetctl.workflow.facts import TrialFacts, arm_counts, design_of, guard_facts, in_order
from fleetctl.workflow.judgement import matching_dispersion


@dataclass(frozen=True)
class BisectSearch:
    """The questions of a bisection.

    Attributes:
        labels: of the changes.
        make: makes the build of a point under a name.
        metric: what is counted.
    """

    design: BisectDesign
    labels: tuple[str, ...]
    make: Callable[[int, str], Build]
    metric: Metric = "corruption"

    def next(self, answers: Sequence[Answered], unbuildable: Mapping[Key, str]) -> Question | None:
        """Return the next question, or None at the end."""
        points = self.points(unbuildable)
        step = self.step(answers, points)
        if isinstance(step, End):
            return None
        point = points[step.point]
        return Question(
            key=(point,),
            build=self.name(point),
            why=_why(step),
            confirms=None if step.confirms is None else points[step.confirms],
            must_work=point in (0, len(self.labels)),
        )

    def build(self, question: Question) -> Build:
        """Return the build of a question."""
        return self.make(question.key[0], question.build)

    def points(self, unbuildable: Mapping[Key, str]) -> list[int]:
        """Return the points that can be measured; the changes between two of them are one step."""
        return [point for point in range(len(self.labels) + 1) if (point,) not in unbuildable]

    def step(self, answers: Sequence[Answered], points: Sequence[int]) -> Next | End:
        """Return what comes next, counted in measurable points."""
        return next_step(self.over(points), runs_at(answers, points, self.metric))

    def over(self, points: Sequence[int]) -> BisectDesign:
        """Return the design over the measurable points only."""
        return replace(self.design, changes=len(points) - 1)

    def name(self, point: int) -> str:
        """Return how people know a build: its place in the list and its last change."""
        return build_name(self.labels, point)


def runs_at(
    answers: Sequence[Answered], points: Sequence[int], metric: Metric
) -> tuple[SearchRun, ...]:
    """Return the answers as runs, their points counted among the measurable ones."""
    return tuple(
        SearchRun(
            points.index(answered.asked.key[0]),
            run_of_answer(answered, metric),
            None if answered.asked.confirms is None else points.index(answered.asked.confirms),
        )
        for answered in answers
    )


def _why(step: Next) -> str:
    if step.confirms is not None:
        return "confirmation"
    return "an end of the list" if step.bits is None else f"{step.bits:.2f} bits expected"


def begin(folder: RunFolder, held: HeldSite, asked: AskedBisect) -> BisectSearch:
    """Return the search on a held site that is as found."""
    spec = asked.spec.bisect
    labels, ids, make = list_of(held.plan.site.hosts, asked)
    known = known_at_start(folder, held, labels, ids)
    design = BisectDesign(
        changes=len(labels),
        sessions=asked.job.workload.sessions,
        confidence=spec.confidence,
        max_runs=spec.max_runs,
        confirm_runs=spec.confirm_runs,
        seed=asked.job.trials.seed,
        worlds=Worlds(rates=rate_priors(spec, known.rho)),
    )
    return BisectSearch(design, tuple(labels), make, held.job.metric)


def report_and_end(
    asked: AskedBisect, search: BisectSearch, folder: RunFolder
) -> tuple[BisectReport, str]:
    """Return what the bisection found, and the word for its end."""
    report = report_bisect(asked, search, folder)
    return report, str(report.end.ending)


def report_bisect(asked: AskedBisect, search: BisectSearch, folder: RunFolder) -> BisectReport:
    """Return what the search found, with the confirmation judged by the real judge."""
    log = SearchLog(folder)
    answers, points = log.answers(), search.points(log.unbuildables())
    runs = runs_at(answers, points, search.metric)
    end = search.step(answers, points)
    assert isinstance(end, End), "a report is made at the end"  # noqa: S101 - ours to keep
    names: dict[Key, str] = {(k,): search.name(k) for k in range(len(search.labels) + 1)}
    return BisectReport(
        name=asked.spec.experiment.name,
        hypothesis=asked.spec.experiment.hypothesis,
        run_id=folder.run_id,
        labels=search.labels,
        points=tuple(points),
        design=search.over(points),
        end=end,
        belief=belief_of(search.over(points), runs),
        rates=rates_by_point(runs),
        search_runs=sum(run.confirms is None for run in runs),
        confirmation_runs=sum(run.confirms is not None for run in runs),
        judgement=_judgement(asked, answers, points, end, folder),
        skipped=skipped(names, log),
        metric=search.metric,
        as_found=notes_of(folder),
    )


def _judgement(
    asked: AskedBisect,
    answers: Sequence[Answered],
    points: Sequence[int],
    end: End,
    folder: RunFolder,
) -> Judgement | None:
    """Judge the build without the suspect against the one with it, by the confirmation's own runs.

    The judge's control is the arm that shows the fault, so here it is the build with the suspect;
    where the list lowers the rate, it is the first build.
    """
    judged = end.ending in (Ending.FOUND, Ending.REVERSED)
    if not judged or not asked.spec.bisect.confirm_runs:
        return None
    worse = points[end.culprit or 0]
    facts = in_order(
        replace(
            TrialFacts.from_json(answered.facts),
            arm="control" if answered.asked.key == (worse,) else "treatment",
        )
        for answered in answers
        if answered.asked.confirms == worse
    )
    history, metric = History(folder.path.parent), asked.spec.metric
    experiment = _confirmation(asked.spec)
    guards = guard_facts(
        experiment, facts, given_up_runs=0, perturbing=history.perturbing_observers()
    )
    guards = replace(guards, differences=as_one_change(guards.differences))
    return judge(
        arm_counts(facts, "control", metric),
        arm_counts(facts, "treatment", metric),
        design=design_of(experiment),
        guards=guards,
        history=matching_dispersion(history, facts, metric),
    )


def _confirmation(spec: Bisect) -> Experiment:
    """Return the experiment that a confirmation is: the same workload, one change."""
    return Experiment(
        experiment=spec.experiment,
        workload=spec.workload,
        trials=spec.trials.trials(spec.bisect.confirm_runs),
        verdict=spec.verdict,
        jit=spec.jit,
    )


def as_one_change(found: tuple[Difference, ...] | None) -> tuple[Difference, ...] | None:
    """Return what differs with patches and flags told as the one change that was asked about."""
    if found is None:
        return None
    parts = [d for d in found if d.kind in (Kind.PATCH, Kind.FLAG)]
    rest = tuple(d for d in found if d.kind not in (Kind.PATCH, Kind.FLAG))
    if not parts:
        return rest
    names = ", ".join(d.name for d in parts)
    return (Difference(Kind.CHANGE, names, "with", "without"), *rest)
