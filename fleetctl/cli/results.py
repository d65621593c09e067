"""`fleetctl results`: what runs there were, and what each one says."""

from __future__ import annotations

from typing import Annotated

import typer

from fleetctl.cli.options import DEFAULT_RUNS, AsJson, RunsPath
from fleetctl.store.run_folder import RunFolder, find_run, list_runs

results = typer.Typer(no_args_is_help=True, help="Look at runs: list them, show one.")


@results.command("list")
def list_results(runs: RunsPath = DEFAULT_RUNS, as_json: AsJson = False) -> None:
    """List the runs, oldest first."""
    from fleetctl.cli.data import print_json, print_lines

    rows = [_row(run) for run in list_runs(runs)]
    if as_json:
        print_json(rows)
        return
    print_lines(f"{r['run']:<52} {r['state']:<11} {r['verdict']:<13} {r['name']}" for r in rows)


@results.command("show")
def show_result(
    run: Annotated[str, typer.Argument(help="A run's id, its unique beginning, or `latest`.")],
    runs: RunsPath = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> None:
    """Show a run's report; without one, how far it came."""
    from fleetctl.cli.data import print_json, print_lines

    folder = find_run(runs, run)
    if as_json:
        name = "report.json" if folder.has("report.json") else "run.json"
        print_json(folder.read_json(name))
    elif folder.has("report.txt"):
        print_lines((folder.path / "report.txt").read_text(encoding="utf-8").splitlines())
    else:
        print_lines([f"{folder.run_id} has no report; its events:"])
        print_lines(f"  {event.kind}: {dict(event.facts)}" for event in folder.events())


def _row(run: RunFolder) -> dict[str, str]:
    head = run.read_json("run.json")
    verdict = run.read_json("report.json").get("verdict", "") if run.has("report.json") else ""
    kinds = [event.kind for event in run.events()]
    state = "finished" if "finished" in kinds else (kinds[-1] if kinds else "begun")
    return {
        "run": run.run_id,
        "state": state,
        "verdict": str(verdict),
        "name": str(head.get("name", "")),
    }
