"""`fleetctl run`: a whole experiment, from the spec to the verdict, with every host restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.console import Console
from fleetctl.cli.data import print_json, print_lines
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, InventoryPath, RunsPath, SpecPath
from fleetctl.errors import ExitCode, InputError

if TYPE_CHECKING:  # --help has to stay quick
    from fleetctl.workflow.judging import Judged

Keep = Annotated[bool, typer.Option("--keep", help="Leave the treatment on the hosts, committed.")]
Expect = Annotated[
    str | None,
    typer.Option(
        "--expect",
        metavar="VERDICT",
        help="End with 0 when this is the verdict, else with 9; default: the spec's.",
        show_default=False,
    ),
]


def run(
    spec: SpecPath,
    keep: Keep = False,
    expect: Expect = None,
    inventory: InventoryPath = None,
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Run an experiment: deploy, prove, measure both arms, restore, judge."""
    from fleetctl.cli.wiring import edges, the_inventory
    from fleetctl.store.history import History
    from fleetctl.workflow.experiment import read
    from fleetctl.workflow.experiment import run as run_experiment
    from fleetctl.workflow.judging import judge_run

    console = Console()
    asked = read(spec)
    wanted = expect or asked.experiment.verdict.expect
    _check_expected(expect)
    for warning in asked.warnings:
        console.say(f"note: {warning}")
    fleet = the_inventory(inventory, console)
    with edges(runs, console) as outside:
        measured = run_experiment(outside, fleet, asked, keep=keep)
        judged = judge_run(measured.folder, asked, measured.facts, History(runs), ())
        measured.folder.record(
            outside.clock.now_s(), "finished", verdict=str(judged.judgement.word)
        )
    report_lines = (measured.folder.path / "report.txt").read_text(encoding="utf-8").splitlines()
    if as_json:
        print_json(measured.folder.read_json("report.json"))
    else:
        print_lines(report_lines)
    raise typer.Exit(verdict_exit_code(judged, wanted))


def verdict_exit_code(judged: Judged, expected: str | None) -> ExitCode:
    """Return the exit code that tells the verdict."""
    word = str(judged.judgement.word)
    if expected is not None:
        return ExitCode.OK if word == expected else ExitCode.UNEXPECTED_VERDICT
    return {"invalid": ExitCode.INVALID, "inconclusive": ExitCode.INCONCLUSIVE}.get(
        word, ExitCode.OK
    )


def _check_expected(word: str | None) -> None:
    from fleetctl.analysis.judgement import Word

    if word is not None and word not in set(Word):
        raise InputError(
            f"no verdict is called {word}",
            why="a verdict is one of " + ", ".join(Word),
            next_step="correct --expect",
        )
