"""What earlier runs teach later ones: A/A runs for dispersion, and observers that disturb."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetctl.analysis.history import AaRecord, record_from_json, record_to_json
from fleetctl.errors import FleetError
from fleetctl.spec.metric import Metric
from fleetctl.store.atomic import append_line, store_errors

AA_FILE = "aa.jsonl"
_OBSERVERS = "observers.jsonl"
_FIRM = ("eliminated", "reduced", "worse", "no_effect")


@dataclass(frozen=True)
class History:
    """The memory of a folder of runs; append-only, torn or foreign lines are passed over."""

    root: Path

    def add_aa(self, record: AaRecord) -> None:
        """Remember runs of one unchanged arm."""
        self._append(AA_FILE, record_to_json(record))

    def aa_records(self) -> tuple[AaRecord, ...]:
        """Return every A/A record, oldest first; of two with one name only the later counts."""
        found = (_aa_record(line) for line in self._lines(AA_FILE))
        return tuple({record.name: record for record in found if record is not None}.values())

    def add_observer(
        self, name: str, verdict: str, run_id: str, metric: Metric = "corruption"
    ) -> None:
        """Remember what an observer's own trial said of the rate that a metric counts."""
        said = {"observer": name, "verdict": verdict, "run": run_id, "metric": metric}
        self._append(_OBSERVERS, said)

    def perturbing_observers(self) -> tuple[str, ...]:
        """Return observers whose own last firm trial says that they move a rate, of any metric."""
        last: dict[tuple[str, str], str] = {}
        for line in self._lines(_OBSERVERS):
            observer, verdict = line.get("observer"), line.get("verdict")
            if isinstance(observer, str) and verdict in _FIRM:
                last[observer, str(line.get("metric", "corruption"))] = str(verdict)
        moving = (name for (name, _), verdict in last.items() if verdict != "no_effect")
        return tuple(dict.fromkeys(moving))

    def _append(self, name: str, value: Mapping[str, Any]) -> None:
        with store_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
        append_line(self.root / name, json.dumps(value))

    def _lines(self, name: str) -> Iterator[dict[str, Any]]:
        path = self.root / name
        if not path.exists():
            return
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def _aa_record(line: Mapping[str, Any]) -> AaRecord | None:
    """Return the record of a line; a foreign line must not cost a measured run its verdict."""
    try:
        return record_from_json(line)
    except FleetError:
        return None
