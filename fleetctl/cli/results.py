"""`fleetctl results`: what runs there were, and what each one says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from fleetctl.cli.options import DEFAULT_RUNS, AsJson, RunsPath
from fleetctl.errors import FleetError
from fleetctl.store.run_folder import Event, RunFolder, find_run, list_runs

# what is recorded of a run before it changes a host
_BEFORE_ANY_CHANGE = frozenset({"found", "held", "failed", "resumed", "spec", "waits"})
_LAST_TIME_S = 253402300800.0  # 9999-12-31

results = typer.Typer(no_args_is_help=True, help="Look at runs: list them, show one.")


@results.command("list")
def list_results(runs: RunsPath = DEFAULT_RUNS, as_json: AsJson = False) -> None:
    """List the runs, oldest first.

    A line has the run's id, its state, its kind (experiment, matrix, bisect, minimize, aa, repro),
    the verdict where there is one, and the name, with `(failures)` where these are counted instead
    of corrupted sessions.

    A run is `finished`, `going on` in another process of this machine, `damaged`, `not begun` (it
    ended before it changed any host, as one does that is refused; `fleetctl results show RUN` says
    why), or `unfinished`: `fleetctl resume RUN` goes on with these two, unless they are of
    `fleetctl aa` or `fleetctl repro`, which start anew.
    """
    from fleetctl.cli.boundary import say
    from fleetctl.cli.data import print_json, print_lines

    locked = locked_inodes()
    rows = [_row_or_damage(run, locked) for run in list_runs(runs)]
    if not rows:
        say(f"no runs below {runs.resolve()}")
    if as_json:
        print_json(rows)
        return
    width = max((len(row["run"]) for row in rows), default=0)
    print_lines(
        f"{r['run']:<{width}} {r['state']:<10} {r['kind']:<10} {r['verdict']:<12} {r['name']}"
        f"{' (failures)' if r['metric'] == 'failures' else ''}"
        for r in rows
    )


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
        names = ("report.json", "result.json", "run.json")
        print_json(folder.read_json(next((n for n in names if folder.has(n)), names[-1])))
    elif folder.has("report.txt"):
        report = folder.path / "report.txt"
        print_lines(report.read_text(encoding="utf-8", errors="replace").splitlines())
    else:
        print_lines([f"{folder.run_id} has no report; its events:"])
        print_lines(f"  {line}" for event in folder.events() for line in _event_lines(event))


def _event_lines(event: Event) -> Iterator[str]:
    """Yield what happened, and below it what the event says; times are in UTC."""
    at = time.strftime("%H:%M:%S", time.gmtime(event.at_s)) if _is_time(event.at_s) else "?"
    yield f"{at}  {event.kind}"
    for name, value in event.facts.items():
        lines = _shown(value)
        yield from (f"          {f'{name}:' if not i else '':<8} {x}" for i, x in enumerate(lines))


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value < _LAST_TIME_S


def _shown(value: object) -> list[str]:
    """Return a value of an event in lines: text as it is, anything else as JSON has it."""
    if isinstance(value, str):
        return value.splitlines()
    if isinstance(value, list):
        return [
            " ".join(map(_word, item)) if isinstance(item, list) else _word(item) for item in value
        ]
    return [_word(value)]


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def locked_inodes(table: Path = Path("/proc/locks")) -> frozenset[int]:
    """Return the inodes that a process of this machine has locked; none where nobody can tell.

    Asking for the lock itself would take it away from a controller that is just starting.
    """
    try:
        fields = [line.split() for line in table.read_text(encoding="ascii").splitlines()]
        return frozenset(int(each[5].rsplit(":", 1)[1]) for each in fields if each[1] == "FLOCK")
    except (OSError, ValueError, IndexError):
        return frozenset()


def _row_or_damage(run: RunFolder, locked: frozenset[int]) -> dict[str, str]:
    """Return a run's row; one damaged folder does not hide the others."""
    try:
        return _row(run, locked)
    except FleetError as error:
        return {
            "run": run.run_id,
            "state": "damaged",
            "kind": "",
            "verdict": "",
            "metric": "",
            "name": error.what,
        }


def _row(run: RunFolder, locked: frozenset[int]) -> dict[str, str]:
    head = run.head()
    report = run.read_table("report.json") if run.has("report.json") else {}
    verdict = report.get("verdict", "")
    return {
        "run": run.run_id,
        "state": _state(run, locked),
        "kind": str(head.get("kind", "")),
        "verdict": str(verdict),
        "metric": str(report.get("metric", "")) or _asked_metric(run, str(head.get("spec", ""))),
        "name": str(head.get("name", "")),
    }


def _asked_metric(run: RunFolder, spec: str) -> str:
    """Return what the spec of a run without a report counts; nothing where it does not say."""
    import tomllib

    path = run.path / "spec" / spec
    if not spec or not path.is_file():
        return ""
    try:
        asked = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    tables = (asked.get("verdict"), asked.get("minimize"))
    found = [table["metric"] for table in tables if isinstance(table, dict) and "metric" in table]
    return str(found[0]) if found else ""


def _state(run: RunFolder, locked: frozenset[int]) -> str:
    kinds = {event.kind for event in run.events()}
    if "finished" in kinds:
        return "finished"
    if run.path.stat().st_ino in locked:
        return "going on"
    # workers of a queue keep their own records, and `repro` changes no host
    is_elsewhere = run.has("queue.json") or run.kind == "repro"
    return "unfinished" if is_elsewhere or kinds - _BEFORE_ANY_CHANGE else "not begun"
