"""`judge` and `power`: a verdict on counts typed in by hand, and what a design can see."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from fleetctl.cli.options import AsJson, finite
from fleetctl.errors import ExitCode, InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleetctl.analysis.counts import ArmCounts, Run
    from fleetctl.analysis.effective import Difference
    from fleetctl.analysis.guards import GuardFacts
    from fleetctl.analysis.history import Dispersion
    from fleetctl.analysis.judgement import Judgement, Word
    from fleetctl.spec.metric import Metric as Counted

Counts = Annotated[str, typer.Option(metavar="BAD/SESSIONS,…", help="Its runs: 6/40,5/40,7/40.")]
HistoryPath = Annotated[
    Path | None,
    typer.Option(
        help="A/A history whose dispersion is used: `aa.jsonl` in the folder of runs.",
        show_default=False,
    ),
]
Records = Annotated[
    list[str],
    typer.Option(
        "--record",
        metavar="NAME",
        help="A record of the history to use; may be repeated. Default: all.",
        default_factory=list,
        show_default=False,
    ),
]
Observers = Annotated[
    list[str],
    typer.Option(
        "--observer-on",
        metavar="[ARM:]NAME",
        help="An observer that was on, in both arms or in one; may be repeated.",
        default_factory=list,
        show_default=False,
    ),
]
Changes = Annotated[
    list[str],
    typer.Option(
        "--changed",
        metavar="NAME",
        help="What differs between the arms; may be repeated.",
        default_factory=list,
        show_default=False,
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        metavar="METRIC", help="What was counted as bad: `corruption`, or all `failures`."
    ),
]
EXAMPLE = "write it like --control 6/40,5/40,7/40"
_MOST_SESSIONS = 10_000
_ALL_PERCENT = 100


def judge(  # noqa: PLR0913, PLR0917 - a command's options are its arguments
    control: Counts,
    treatment: Counts,
    observer_on: Observers,
    changed: Changes,
    record: Records,
    target: Annotated[str, typer.Option(help="Rate that counts as eliminated.")] = "1%",
    margin: Annotated[
        str | None,
        typer.Option(help="Difference that would not matter; default: half the control's rate."),
    ] = None,
    alpha: Annotated[str, typer.Option(help="Two-sided level.")] = "5%",
    looks: Annotated[
        str | None,
        typer.Option(metavar="RUNS,…", help="Declared looks, in runs per arm: 4,6,8."),
    ] = None,
    metric: Metric = "corruption",
    history: HistoryPath = None,
    expect: Annotated[
        str | None,
        typer.Option(metavar="VERDICT", help="End with 0 when this is the verdict, else with 9."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Judge counts typed in by hand: is the treatment better than the control?

    Ends with 0 when decided, 7 when inconclusive, 8 when invalid.
    """
    from fleetctl.analysis.design import Design
    from fleetctl.analysis.verdict import judge as judged
    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.report import as_json as json_of
    from fleetctl.report import document, terminal

    expected = None if expect is None else word_of(expect)
    facts, counted = facts_of(observer_on, changed), metric_of(metric)
    verdict = judged(
        arm_of("control", control),
        arm_of("treatment", treatment),
        design=Design(
            target=share_of("--target", target),
            margin=None if margin is None else share_of("--margin", margin),
            alpha=share_of("--alpha", alpha),
            looks=looks_of(looks),
            metric=counted,
        ),
        guards=facts,
        history=None if history is None else dispersion_of(history, record, counted),
    )
    report = document.build(verdict, differences=facts.differences)
    if as_json:
        print_json(json_of.as_json(report))
    else:
        print_lines(terminal.render(report).splitlines())
    return int(exit_code_of(verdict, expected))


def power(  # noqa: PLR0913, PLR0917 - a command's options are its arguments
    baseline: Annotated[str, typer.Option(help="Rate of the control, such as 15%.")],
    record: Records,
    target: Annotated[
        str | None, typer.Option(help="Treatment rate that should be seen, such as 5%.")
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, max=10_000, help="Sessions per run.")] = 40,
    runs: Annotated[int, typer.Option(min=1, max=100, help="Runs per arm of the design.")] = 3,
    icc: Annotated[
        float | None,
        typer.Option(
            callback=finite,
            min=0,
            max=1,
            help="Correlation inside runs; default: history's, else 0.",
        ),
    ] = None,
    minutes_per_run: Annotated[
        float | None,
        typer.Option(callback=finite, min=0, help="Minutes one run takes, for the host time."),
    ] = None,
    metric: Metric = "corruption",
    history: HistoryPath = None,
    as_json: AsJson = False,
) -> None:
    """Say what a design can see, and how many runs per arm other effects need."""
    from fleetctl.analysis.power import Assumed, power_table
    from fleetctl.analysis.qbf import correlation
    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.report import power as power_report

    counted = metric_of(metric)
    stored = None if history is None else dispersion_of(history, record, counted)
    if icc is None:
        icc = 0.0 if stored is None else correlation(stored.phi, [sessions])
    table = power_table(
        share_of("--baseline", baseline, is_open=True),
        Assumed(sessions=sessions, rho=icc, history=stored, metric=counted),
        runs=runs,
        target=None if target is None else share_of("--target", target),
        minutes_per_run=minutes_per_run,
    )
    if as_json:
        print_json(power_report.as_json(table))
    else:
        print_lines(power_report.render(table).splitlines())


def arm_of(name: str, text: str) -> ArmCounts:
    """Return the arm that a text such as "6/40,5/40,7/40" spells.

    Raises:
        InputError: no run, or a run that is not bad/sessions; says which one.
    """
    from fleetctl.analysis.counts import ArmCounts

    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        raise InputError(f"`--{name}` has no run", why="it is empty", next_step=EXAMPLE)
    return ArmCounts(
        name, tuple(_run_of(f"--{name}, run {i}", part) for i, part in enumerate(parts, start=1))
    )


def _run_of(where: str, text: str) -> Run:
    from fleetctl.analysis.counts import Run

    bad, slash, sessions = (part.strip() for part in text.partition("/"))
    if not (slash and bad.isdecimal() and sessions.isdecimal()):
        raise InputError(f"`{where}` is `{text}`", why="it is not bad/sessions", next_step=EXAMPLE)
    if len(sessions) > len(str(_MOST_SESSIONS)) or int(sessions) > _MOST_SESSIONS:
        raise InputError(
            f"`{where}` is `{text}`",
            why=f"an exact test of more than {_MOST_SESSIONS} sessions a run takes too long",
            next_step=EXAMPLE,
        )
    try:
        return Run(int(bad), int(sessions))
    except InputError as error:
        raise InputError(
            f"`{where}` is `{text}`", why="more sessions are bad than there are", next_step=EXAMPLE
        ) from error


def share_of(option: str, text: str, *, is_open: bool = False) -> float:
    """Return the share an option spells, such as 1% or 0.01; `is_open` refuses 0 and 1.

    Raises:
        InputError: not a share.
    """
    from fleetctl.spec.quantities import share

    number: object = text
    with contextlib.suppress(ValueError):
        number = float(text)
    try:
        found = share(number)
    except ValueError as error:
        meant = isinstance(number, float) and 1 < number <= _ALL_PERCENT
        raise InputError(
            f"`{option}` is `{text}`",
            why=str(error),
            next_step=f"write it like {text}%" if meant else "write it like 1% or 0.01",
        ) from error
    if is_open and found in (0, 1):
        raise InputError(
            f"`{option}` is `{text}`",
            why="a control in which nothing or everything is bad can't be compared",
            next_step="write it like 15% or 0.15",
        )
    return found


def looks_of(text: str | None) -> tuple[int, ...]:
    """Return the looks that a text such as "4,6,8" spells.

    Raises:
        InputError: not whole numbers.
    """
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(
            f"`--looks` is `{text}`",
            why="looks are whole numbers of runs per arm",
            next_step="write it like --looks 4,6,8",
        )
    return tuple(int(part) for part in parts)


def word_of(text: str) -> Word:
    """Return the verdict a text spells.

    Raises:
        InputError: there is no such verdict.
    """
    from fleetctl.analysis.judgement import Word
    from fleetctl.spec.nearest import nearest

    try:
        return Word(text)
    except ValueError as error:
        words = [str(word) for word in Word]
        raise InputError(
            f"`--expect` is `{text}`",
            why=f"there is no such verdict{nearest(text, words)}",
            next_step=f"give one of {', '.join(words)}",
        ) from error


def metric_of(text: str) -> Counted:
    """Return the metric a text spells.

    Raises:
        InputError: there is no such metric.
    """
    from fleetctl.spec.metric import Metric as Known
    from fleetctl.spec.nearest import nearest

    known: tuple[Counted, ...] = get_args(Known)
    for name in known:
        if name == text:
            return name
    raise InputError(
        f"`--metric` is `{text}`",
        why=f"there is no such metric{nearest(text, known)}",
        next_step=f"give one of {', '.join(known)}",
    )


def facts_of(observers: list[str], changed: list[str]) -> GuardFacts:
    """Return what was told about the arms; an observer on in one arm only is a difference."""
    from fleetctl.analysis.effective import Difference, Kind
    from fleetctl.analysis.guards import GuardFacts

    both = [name for name in observers if _arm_and_name(name)[0] is None]
    found = [Difference(Kind.CHANGE, name, "without", "with") for name in changed]
    found += [_observer_difference(name) for name in observers if name not in both]
    return GuardFacts(differences=tuple(found) if found else None, observers=tuple(both))


def _observer_difference(text: str) -> Difference:
    from fleetctl.analysis.effective import Difference, Kind

    arm, name = _arm_and_name(text)
    on = ("on", "off") if arm == "control" else ("off", "on")
    return Difference(Kind.OBSERVER, name, *on)


def _arm_and_name(text: str) -> tuple[str | None, str]:
    arm, colon, name = text.partition(":")
    return (arm, name) if colon and arm in ("control", "treatment") else (None, text)


def dispersion_of(path: Path, names: Sequence[str], metric: Counted) -> Dispersion:
    """Return a metric's pooled dispersion of a history file, or of the named records of it.

    Raises:
        InputError: the file can't be read, is malformed, has no such record, mixes hosts or
            workloads, or tells nothing about dispersion.
    """
    from fleetctl.analysis.history import pool, records_from_text

    try:
        records = records_from_text(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"`--history` {path} can't be read",
            why=getattr(error, "strerror", None) or str(error),
            next_step="give the `aa.jsonl` that `fleetctl aa` wrote into the folder of runs",
        ) from error
    known = [record.name for record in records]
    if absent := [name for name in names if name not in known]:
        raise InputError(
            f"`--history` {path} has no record {absent[0]}",
            why=f"it has {', '.join(known) or 'none'}",
            next_step="correct --record",
        )
    records = tuple(record for record in records if record.name in (names or known))
    kinds = {(record.host_class, record.workload_sha256) for record in records}
    if len(kinds) > 1:
        raise InputError(
            f"`--history` {path} mixes host classes or workloads",
            why="dispersion is taken only from runs of the same host class and workload",
            next_step="name the records of one of them with --record",
        )
    for host_class, workload in kinds:
        found = pool(records, host_class=host_class, workload_sha256=workload, metric=metric)
        if found is not None:
            return found
    raise InputError(
        f"`--history` {path} tells nothing about dispersion",
        why=f"it needs a record of two runs or more with some bad sessions by {metric}",
        next_step="collect more with `fleetctl aa`",
    )


def exit_code_of(judgement: Judgement, expected: Word | None) -> ExitCode:
    """Return what the process ends with; with an expected verdict only that matters."""
    from fleetctl.analysis.judgement import Word
    from fleetctl.cli.boundary import say

    if expected is not None:
        if judgement.word is expected:
            return ExitCode.OK
        say(f"unexpected verdict: {judgement.word}, expected: {expected}")
        return ExitCode.UNEXPECTED_VERDICT
    undecided = {Word.INCONCLUSIVE: ExitCode.INCONCLUSIVE, Word.INVALID: ExitCode.INVALID}
    return undecided.get(judgement.word, ExitCode.OK)
