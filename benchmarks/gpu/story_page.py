"""The story's numbers as a page: what `story.json` holds, in tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Result = dict[str, Any]

COLUMNS = ("runner", "keys", "overlap", "instrument", "indexer")
HEAD = (*COLUMNS, "corrupt sessions", "by trial", "wrong tokens per million")


def markdown(result: Result) -> str:
    """Return the page for what a run of `table` found; parts that were not run are left out."""
    parts = list(_parts(result))
    return "\n\n".join(("# The story's tables", _facts(result), *parts)) + "\n"


def _facts(result: Result) -> str:
    knobs = " ".join(f"{name}={value}" for name, value in result["load"].items())
    return f"{result['device']}, PyTorch {result['torch']}.\n\n`{knobs}`"


def _parts(result: Result) -> Iterator[str]:
    if result.get("cells"):
        yield f"## Every combination\n\n{_cells(result['cells'])}"
    if result.get("batch_1"):
        yield f"## One session at a time\n\n{_cells(result['batch_1'])}"
    for name in (name for name in result if name.startswith("races ")):
        yield f"## Shared bytes: {name.removeprefix('races ')}\n\n{_races(result[name])}"
    for name in (name for name in result if name.startswith("timeline ")):
        yield f"## One layer: {name.removeprefix('timeline ')}\n\n{_timeline(result[name])}"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(cell) for cell in line)} |" for line in lines)


def _cells(rows: Sequence[Result]) -> str:
    return _table(HEAD, [_cell(row) for row in rows])


def _cell(row: Result) -> list[object]:
    share = 100 * row["corrupt"] / row["sessions"]
    by_trial = " ".join(str(count) for count in row["corrupt_by_trial"])
    overlap = "on" if row["overlap"] else "off"
    named = (row["runner"], row["keys"], overlap, row["instrument"], row["indexer"])
    counted = f"{row['corrupt']}/{row['sessions']} = {share:.1f} %"
    return [*named, counted, by_trial, f"{row['wrong_per_million']:,}"]


def _races(by_bucket: dict[str, list[Result]]) -> str:
    head = ("bucket", "the main stream writes", "over the side stream's", "bytes", "of")
    rows = [
        (bucket, race["main"], race["side"], f"{race['offset']} + {race['shared_bytes']}", total)
        for bucket, races in by_bucket.items()
        for race in races
        if race["main_writes"] and "/" not in race["main"] + race["side"]
        for total in (race["side_bytes"],)
    ]
    return _table(head, rows) if rows else "No two unordered accesses share a byte."


def _timeline(events: Sequence[Result]) -> str:
    head = ("stream", "kernel", "start us", "end us")
    main = events[0]["stream"] if events else None
    rows = [
        (
            "side" if event["stream"] == main else "main",
            event["name"][:60].replace("|", " "),
            f"{event['start_us']:.1f}",
            f"{event['start_us'] + event['us']:.1f}",
        )
        for event in events
    ]
    return _table(head, rows)
