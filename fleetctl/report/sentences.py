"""The verdict in words: one sentence first, then what must be said beside it, why, and what next.

No sentence calls the fault gone unless the verdict's bound holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.analysis.effective import Difference, Kind
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.judgement import (
    ArmEstimate,
    Elimination,
    Flag,
    Judgement,
    MainTest,
    Numbers,
    Word,
)
from fleetctl.report.labels import FAILURES, LABELS, REMEDIES
from fleetctl.report.metrics import WORDS, Words
from fleetctl.report.numbers import count, level_text, p_beside, percent, points_interval

# of the treatment's rate; the comparison's table shows the same numbers
ONE_SIDED = "one-sided 95% bound"


def headline(judgement: Judgement) -> str:
    """Return the verdict in one sentence."""
    word = judgement.word.replace("_", " ").upper()
    another_day = Flag.HISTORICAL_CONTROL in judgement.flags
    against = "against a control from another day, " if another_day else ""
    return f"{word}: {against}{_told(judgement)}."


def _told(judgement: Judgement) -> str:
    numbers = judgement.numbers
    if numbers is None or judgement.word is Word.INVALID:
        return f"no conclusion may be drawn: {FAILURES[judgement.reason]}{_by_how_much(judgement)}"
    told = {
        Word.ELIMINATED: _gone,
        Word.REDUCED: _reduced,
        Word.WORSE: _moved,
        Word.NO_EFFECT: _no_effect,
        Word.INCONCLUSIVE: _undecided,
    }
    return told[judgement.word](judgement, numbers)


def _by_how_much(judgement: Judgement) -> str:
    """Return the numbers behind an unequal exposure; other failures are told under Why."""
    found = [
        check.facts
        for check in judgement.failed_checks
        if check.name == judgement.reason and check.name.startswith("exposure_")
    ]
    return _found(found[0]) if found else ""


def _reduced(judgement: Judgement, numbers: Numbers) -> str:
    still = _how_far_from_gone(judgement.treatment, numbers.elimination, words_of(judgement))
    return f"{_moved(judgement, numbers)}; {still}"


def _gone(judgement: Judgement, _: Numbers) -> str:
    own = judgement.treatment
    return (
        f"at most {percent(own.upper95)} of sessions {words_of(judgement).are_bad}"
        f" ({ONE_SIDED}; {own.counts.bad}/{own.counts.sessions} in {units(own)});"
        f" the control has {percent(judgement.control.rate)}"
    )


def _moved(judgement: Judgement, numbers: Numbers) -> str:
    change = points_interval(numbers.comparison.ci95)
    told = f"{from_to(judgement)} of sessions {words_of(judgement).are_bad}"
    return f"{told} (95% CI of the change {change})"


def words_of(judgement: Judgement) -> Words:
    """Return how the sessions are called that this judgement counts."""
    return WORDS[judgement.design.metric]


def _how_far_from_gone(own: ArmEstimate, elimination: Elimination, words: Words) -> str:
    target = percent(elimination.target)
    if elimination.refuted:
        return f"not gone: at least {percent(own.lower95)} {words.are_still} ({ONE_SIDED})"
    if own.counts.bad:
        return f"not shown to be below {target} (at most {percent(own.upper95)}, {ONE_SIDED})"
    if own.upper95 <= elimination.target:
        return (
            f"not called gone: all clean sessions are of {units(own)}, which may be lucky as a"
            f" whole; {clean_left(elimination)} would tell"
        )
    return (
        f"not shown to be below {target}: 0 {words.bad} says at most {percent(own.upper95)}"
        f" ({ONE_SIDED}), {clean_left(elimination)} are still needed"
    )


def clean_left(elimination: Elimination) -> str:
    """Return the clean sessions and runs that are still needed."""
    left, runs = elimination.clean_sessions_left or 0, elimination.clean_runs_left
    if runs is not None and not left:
        return f"{count(runs, 'more clean run')} (runs count here, not sessions)"
    sessions = count(left, "more clean session")
    return sessions if runs is None else f"{sessions} ({count(runs, 'run')})"


def _no_effect(judgement: Judgement, numbers: Numbers) -> str:
    test = numbers.comparison.test
    interval = "" if test is None else f", {_conf(test)} CI {points_interval(test.equivalence)}"
    return (
        f"any change is smaller than ±{100 * numbers.margin:.1f} points"
        f" ({from_to(judgement)}{interval})"
    )


def _conf(test: MainTest) -> str:
    """Return the confidence that "no effect" takes at this look: more than 90 % at an early one."""
    return f"{100 * test.equivalence_conf:.4g}%"


def _undecided(judgement: Judgement, numbers: Numbers) -> str:
    if judgement.reason == "other_failures":
        more = "; ".join(_other_failures(judgement))
        return (
            f"{_moved(judgement, numbers)}, but more sessions of the treatment failed without being"
            f" corrupt ({more}): the fault may have changed its face"
        )
    told = f"not decided whether {from_to(judgement)} is an effect or chance"
    if numbers.elimination.refuted:
        still = percent(judgement.treatment.lower95)
        are_still = words_of(judgement).are_still
        told += f"; elimination is refuted (at least {still} {are_still}, {ONE_SIDED})"
    return f"{told}{_more_exposed(judgement)}; {more_runs(numbers)}"


def more_runs(numbers: Numbers) -> str:
    """Return how many more runs would decide."""
    outlook = numbers.outlook
    if outlook.next_look is not None:
        return f"the next declared look is at {outlook.next_look} runs per arm"
    if outlook.more_runs is None:
        return (
            f"no sensible number of runs settles so small a difference"
            f" ({outlook.equivalence_runs} per arm could show that it is within"
            f" ±{100 * numbers.margin:.1f} points)"
        )
    return (
        f"about {count(outlook.more_runs, 'more run')} per arm would decide"
        f" if the difference is as seen"
    )


def changes(differences: Sequence[Difference] | None) -> list[str]:
    """Return what differs between the arms, one line for each; nothing where nobody knows."""
    if differences is None:
        return []
    if not differences:
        return ["changed: nothing; both arms ran alike, so this is an A/A run"]
    return [
        f"changed: {'' if d.kind is Kind.CHANGE else f'{d.kind} '}{d.name},"
        f" {d.control} -> {d.treatment}"
        for d in differences
    ]


def from_to(judgement: Judgement) -> str:
    """Return both rates."""
    return f"{percent(judgement.control.rate)} -> {percent(judgement.treatment.rate)}"


def units(arm: ArmEstimate) -> str:
    """Return how many boots, or runs, stand behind an arm."""
    booted = any(run.boot is not None for run in arm.counts.runs)
    return count(len(arm.counts.clusters), "boot" if booted else "run")


FLAG_TOLD = {
    Flag.PEEKED: "peeked: this look was not declared, so only the e-value of the random blocks"
    " may decide",
    Flag.PERTURBING_OBSERVER: "perturbing observer: it moves the rate by itself, so nothing"
    " measured with it on can be trusted",
    Flag.CONFOUNDED: "confounded: more than one thing differs between the arms",
    Flag.NOT_EXERCISED: "not exercised: the load never reached its declared trigger",
    Flag.EXPOSURE_DIFFERS: "exposure differs, and a slower service can hide a race",
    Flag.FOREIGN_LOAD: "foreign load: somebody else asked the server during the run, too",
    Flag.OTHER_FAILURES: "other failures: sessions that are not corrupt and yet did not end as"
    " asked, as a broken reply may look",
    Flag.DRIFT: "drift: the rate changes over time within the arms",
    Flag.HETEROGENEOUS: "heterogeneous: runs or hosts differ by more than chance",
    Flag.HISTORICAL_CONTROL: "historical control: it is from another day, so anything that changed"
    " since counts as the treatment, and so does the luck of its boot",
    Flag.BLOCKED_ORDER: "blocked order: all runs of one arm came first, so any drift looks like an"
    " effect",
    Flag.POST_HOC: "post hoc: the question was asked after the data were seen",
}


def beside(judgement: Judgement) -> list[str]:
    """Return what must be said beside the verdict, one line for each flag."""
    told = [
        FLAG_TOLD[flag] + _facts_of(flag, judgement)
        for flag in judgement.flags
        if flag in FLAG_TOLD
    ]
    if judgement.observers:
        told.append(f"observer on in both arms: {', '.join(judgement.observers)}")
    if judgement.history is not None and Flag.HISTORY_USED in judgement.flags:
        told.append(history_used(judgement.history))
    return told


def history_used(history: Dispersion) -> str:
    """Return which stored runs lent their dispersion."""
    names = f": {', '.join(history.records)}" if history.records else ""
    return (
        f"history used: dispersion {history.phi:.2f} on {history.df} df from stored A/A runs{names}"
    )


def _facts_of(flag: Flag, judgement: Judgement) -> str:
    """Return what was found behind a flag, where its words alone don't tell how much."""
    failed = [check for check in judgement.checks if check.passed is False]
    if flag is Flag.FOREIGN_LOAD:
        found = [fact for check in failed if check.name == "foreign_load" for fact in check.facts]
        more = len(found) - 1
        others = f", and {count(more, 'more sign')} under Checks" if more > 0 else ""
        return f": {found[0]}{others}" if found else ""
    if flag is Flag.OTHER_FAILURES:
        return _found(_other_failures(judgement))
    if flag is not Flag.EXPOSURE_DIFFERS:
        return ""
    exposures = [check for check in failed if check.name.startswith("exposure_") and check.facts]
    told = [f"{_exposed_to(check.name)}: {check.facts[0]}" for check in exposures]
    return f": {'; '.join(told)}" if told else ""


def _other_failures(judgement: Judgement) -> tuple[str, ...]:
    checks = [check for check in judgement.checks if check.name == "other_failures"]
    return checks[0].facts if checks else ()


def _exposed_to(check: str) -> str:
    return LABELS[check].removeprefix("difference of ")


def _more_exposed(judgement: Judgement) -> str:
    """Return which arm had more of what, where that is why nothing was decided."""
    if judgement.reason != "exposure_differs":
        return ""
    return f"; exposure differs{_facts_of(Flag.EXPOSURE_DIFFERS, judgement)}"


def why(judgement: Judgement) -> list[str]:
    """Return why the verdict is what it is."""
    numbers = judgement.numbers
    if numbers is None or judgement.word is Word.INVALID:
        return [f"{FAILURES[check.name]}{_found(check.facts)}" for check in judgement.failed_checks]
    return [*_why_test(judgement, numbers), *_why_bound(judgement, numbers)]


def _found(facts: tuple[str, ...]) -> str:
    return f" ({'; '.join(facts)})" if facts else ""


def _why_test(judgement: Judgement, numbers: Numbers) -> list[str]:
    comparison = numbers.comparison
    if comparison.test is None:
        return [
            "with one run per arm and no A/A history the spread between runs is unknown,"
            " so nothing can be tested"
        ]
    if comparison.level is None:
        needed = f"{1 / judgement.design.alpha:g}"
        seen = "there is none" if numbers.evalue is None else f"it is {numbers.evalue:.3g}"
        return [f"at an undeclared look the e-value must reach {needed}; {seen}"]
    is_below = comparison.test.p < comparison.level
    level = level_text(comparison.level)
    told = [
        f"p {p_beside(comparison.test.p, comparison.level)} is"
        f" {'below' if is_below else 'not below'} the level {level} of this look"
    ]
    if is_below and not comparison.test.ci95.excludes_zero():
        told.append(
            f"the 95% interval {points_interval(comparison.ci95)} holds zero all the same, so the"
            " difference does not count as shown"
        )
    if judgement.word is Word.INCONCLUSIVE:
        told.append(_why_undecided(judgement, numbers, comparison.test))
    return told


def _why_undecided(judgement: Judgement, numbers: Numbers, test: MainTest) -> str:
    if judgement.reason == "exposure_differs":
        return "the arms were not exposed alike, so equal rates prove nothing"
    if judgement.reason == "other_failures":
        return "a fall of one kind of failure is no repair while another kind rises"
    return (
        f"the {_conf(test)} interval {points_interval(test.equivalence)} leaves"
        f" ±{100 * numbers.margin:.1f} points, so it is no proof of no effect either"
    )


def _why_bound(judgement: Judgement, numbers: Numbers) -> list[str]:
    if judgement.word not in (Word.ELIMINATED, Word.REDUCED):
        return []
    own, target = judgement.treatment, percent(numbers.elimination.target)
    side = "within" if own.upper95 <= numbers.elimination.target else "above"
    return [
        f"the treatment's one-sided 95% bounds are {percent(own.lower95)} and"
        f" {percent(own.upper95)}, the upper one {side} the target {target}"
    ]


def what_next(judgement: Judgement) -> list[str]:
    """Return what to do now."""
    numbers = judgement.numbers
    if numbers is None or judgement.word is Word.INVALID:
        return list(dict.fromkeys(REMEDIES[check.name] for check in judgement.failed_checks))
    if judgement.reason == "other_failures":
        return [
            "read the replies of the treatment's sessions that failed without being corrupt: broken"
            " ones are the same fault"
        ]
    if judgement.word is Word.INCONCLUSIVE:
        history = "`fleetctl aa` collects control runs whose dispersion lends power to every test"
        return [more_runs(numbers), *([] if judgement.history else [history])]
    if judgement.word is Word.REDUCED and judgement.treatment.counts.bad == 0:
        is_below = judgement.treatment.upper95 <= numbers.elimination.target
        brings = "tell that it was no lucky boot" if is_below else "bring the bound to the target"
        return [f"{clean_left(numbers.elimination)} would {brings}"]
    return []
