"""Faults on disk as they happen: a campaign that is itself killed goes on where it was."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.faults.fault import Fault


class Log:
    """Faults by their key, appended to a file where one is named."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.faults: dict[str, Fault] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                record = json.loads(line)
                self.faults[record["key"]] = _fault(record["fault"])

    def add(self, key: str, fault: Fault) -> None:
        """Keep a fault, and say how it went."""
        self.faults[key] = fault
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps({"key": key, "fault": asdict(fault)}) + "\n")
        took = "not back" if fault.seconds is None else f"{fault.seconds:.1f} s"
        mark = "LOST" if fault.is_lost else "late" if fault.is_late else "ok"
        text = f"{mark} {fault.site}: {fault.kind}, {fault.detail}: {took}"
        wrong = [line[:300] for line in fault.wrong[:5]]
        print(text, *wrong, sep="\n    ", file=sys.stderr, flush=True)


def _fault(record: dict[str, Any]) -> Fault:
    wrong = tuple(record.pop("wrong"))
    return Fault(**record, wrong=wrong)
