"""A minimisation's questions and its report: what is asked next, and what the answers say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fleetctl.analysis.counts import Run
from fleetctl.analysis.minimization import (
    EITHER_WAY,
    Minimized,
    MinimizeDesign,
    NextTest,
    Subset,
    SubsetRun,
    next_run,
)
from fleetctl.report.minimize import MinimizeReport
from fleetctl.spec.metric import Metric
from fleetctl.store.run_folder import RunFolder
from fleetctl.store.search_log import Answered, SearchLog
from fleetctl.workflow.as_found import notes_of
from fleetctl.workflow.bisect_ground import Build
from fleetctl.workflow.bisect_known import known_at_start, rate_priors
from fleetctl.workflow.bisect_loop import Key, Question, run_of_answer
from fleetctl.workflow.bisect_run import skipped
from fleetctl.workflow.campaign_site import HeldSite
from fleetctl.workflow.minimize import AskedMinimize, set_of

_MOST_NAMED = 4


@dataclass(frozen=True)
class MinimizeSearch:
    """The questions of a minimisation.

    Attributes:
        labels: of the changes.
        make: makes the build of a set of changes under a name.
        metric: what is counted.
    """

    design: MinimizeDesign
    labels: tuple[str, ...]
    make: Callable[[Iterable[int], str], Build]
    metric: Metric = "corruption"

    def next(self, answers: Sequence[Answered], unbuildable: Mapping[Key, str]) -> Question | None:
        """Return the next question, or None at the end."""
        step = self.step(answers, unbuildable)
        if isinstance(step, Minimized):
            return None
        is_end = step.subset in (frozenset(), self.design.everything)
        why = {"ends": "an end", "rest": "all the others"}.get(step.why, step.why)
        return Question(_key(step.subset), self.name(step.subset), why, must_work=is_end)

    def build(self, question: Question) -> Build:
        """Return the build of a question."""
        return self.make(question.key, question.build)

    def step(
        self, answers: Sequence[Answered], unbuildable: Mapping[Key, str]
    ) -> NextTest | Minimized:
        """Return what comes next."""
        runs = [SubsetRun(frozenset(a.asked.key), run_of_answer(a, self.metric)) for a in answers]
        return next_run(self.design, runs, [frozenset(key) for key in unbuildable])

    def name(self, subset: Subset) -> str:
        """Return how people know a set; two sets never share a name."""
        if not subset:
            return "none of the changes"
        if subset == self.design.everything:
            return "all changes"
        if len(subset) <= _MOST_NAMED:
            return " + ".join(self.labels[index] for index in sorted(subset))
        rest = self.design.everything - subset
        if len(rest) <= _MOST_NAMED:
            return f"all but {', '.join(self.labels[index] for index in sorted(rest))}"
        return f"changes {_ranges(subset)}"


def _key(subset: Subset) -> Key:
    return tuple(sorted(subset))


def _ranges(subset: Subset) -> str:
    """Return numbers from 1 with neighbours joined: 1-4, 7, 9-12."""
    runs: list[list[int]] = []
    for number in sorted(index + 1 for index in subset):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{low}-{high}" if high > low else str(low) for low, high in runs)


def begin(folder: RunFolder, held: HeldSite, asked: AskedMinimize) -> MinimizeSearch:
    """Return the minimisation on a held site that is as found."""
    spec = asked.spec.minimize
    labels, stacked = set_of(held.plan.site.hosts, asked)
    known = known_at_start(folder, held, labels)
    design = MinimizeDesign(
        changes=len(labels),
        sessions=asked.job.workload.sessions,
        error=spec.error,
        tests=spec.tests,
        runs_per_test=spec.runs_per_test,
        end_runs=spec.end_runs,
        max_runs=spec.max_runs,
        worlds=replace(EITHER_WAY, rates=rate_priors(spec, known.rho)),
    )
    return MinimizeSearch(design, labels, stacked, held.job.metric)


def report_and_end(
    asked: AskedMinimize, search: MinimizeSearch, folder: RunFolder
) -> tuple[MinimizeReport, str]:
    """Return what the minimisation found, and the word for its end."""
    report = report_minimize(asked, search, folder)
    return report, str(report.found.ending)


def report_minimize(
    asked: AskedMinimize, search: MinimizeSearch, folder: RunFolder
) -> MinimizeReport:
    """Return what the minimisation found."""
    log = SearchLog(folder)
    answers, unbuildable = log.answers(), log.unbuildables()
    found = search.step(answers, unbuildable)
    assert isinstance(found, Minimized), "a report is made at the end"  # noqa: S101 - ours to keep
    names = {key: search.name(frozenset(key)) for key in unbuildable}
    return MinimizeReport(
        name=asked.spec.experiment.name,
        hypothesis=asked.spec.experiment.hypothesis,
        run_id=folder.run_id,
        labels=search.labels,
        design=search.design,
        found=found,
        builds=_builds(search, answers),
        runs=len(answers),
        skipped=skipped(names, log),
        metric=search.metric,
        as_found=notes_of(folder),
    )


def _builds(
    search: MinimizeSearch, answers: Sequence[Answered]
) -> tuple[tuple[str, int, int, int], ...]:
    """Return name, runs, bad and all sessions of every measured build, in order."""
    runs: dict[Key, list[Run]] = {}
    for answered in answers:
        runs.setdefault(answered.asked.key, []).append(run_of_answer(answered, search.metric))
    return tuple(
        (
            search.name(frozenset(key)),
            len(own),
            sum(run.bad for run in own),
            sum(run.sessions for run in own),
        )
        for key, own in runs.items()
    )
