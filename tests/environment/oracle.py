"""bash as the oracle: a script is run before and after an edit, with stub servers, and compared.

The stubs and the comparison of lines are those of tests/cases/serve_scripts/check_shell.py.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleetctl.environment.local import edit_local_file, write_edits
from fleetctl.errors import EditRefused

JUDGE = Path(__file__).parents[1] / "cases" / "serve_scripts" / "check_shell.py"
SCENARIOS = ({"args": []}, {"args": ["a"]}, {"args": ["b"], "env": {"NOVA_A": "caller"}})

# Lines with a launch may get an edit beside it; a value of two lines may become one.
TOUCHABLE = re.compile(r"launch_server|vllm|api_server|^ *(1|2|0|on)\)$|\$@")


def load_judge():
    """Import the program that judges the shared cases."""
    if "check_shell" in sys.modules:
        return sys.modules["check_shell"]
    spec = importlib.util.spec_from_file_location("check_shell", JUDGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_shell"] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Outcome:
    """What became of one script: `passed`, `no server ran`, `failed`, or `refused CODE`."""

    status: str
    problems: list[str] = field(default_factory=list)
    text: str = ""


class Oracle:
    """Edits a copy of a script and runs both."""

    def __init__(self, work: Path, *, scenarios: Sequence[Mapping] = SCENARIOS) -> None:
        self.judge = load_judge()
        self.work = work
        self.scenarios = scenarios
        self._before: dict[tuple[str, str], tuple] = {}

    def try_edit(
        self,
        text: str,
        edits: Mapping[str, str | None],
        files: Mapping[str, str] | None = None,
        touch: Sequence[int] = (),
    ) -> Outcome:
        """Edit, run, compare; `touch` are lines that may go although they do not name a flag."""
        for name in ("before", "after"):
            self._lay_out(self.work / name, text, files or {})
        path = self.work / "after" / "serve.sh"
        try:
            write_edits(edit_local_file(path, edits))
        except EditRefused as error:
            same = path.read_bytes() == text.encode()
            return Outcome(f"refused {error.code}", [] if same else ["refused, yet changed"])
        return self._compare(text, edits, path, touch)

    def _lay_out(self, root: Path, text: str, files: Mapping[str, str]) -> None:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        everything = {**files, "preflight": "#!/bin/sh\nexit 0\n", "serve.sh": text}
        for name, content in everything.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content.encode())
            (root / name).chmod(0o755)

    def _compare(
        self, text: str, edits: Mapping[str, str | None], path: Path, also: Sequence[int]
    ) -> Outcome:
        problems = []
        after = path.read_bytes()
        write_edits(edit_local_file(path, edits))
        if path.read_bytes() != after:
            problems.append("a second edit changes something")
        lines = text.split("\n")
        touch = [number for number, line in enumerate(lines, 1) if TOUCHABLE.search(line)]
        case = {"touch_ok": [*touch, *also], "thaw": []}
        problems += self.judge.compare_lines(text.encode(), after, edits, case)
        started = 0
        for scenario in self.scenarios:
            count, found = self._run(text, edits, scenario)
            started += count
            problems += found
        shown = after.decode("utf-8", "replace")
        if not started and not problems:
            return Outcome("no server ran", text=shown)
        return Outcome("failed" if problems else "passed", problems, shown)

    def _run_one(self, name: str, scenario: Mapping) -> tuple:
        root = self.work / name
        return self.judge.run_script(root, root / "serve.sh", scenario, self.work / "run")

    def _run(
        self, text: str, edits: Mapping[str, str | None], scenario: Mapping
    ) -> tuple[int, list[str]]:
        key = (text, str(scenario))
        if key not in self._before:
            self._before[key] = self._run_one("before", scenario)
        rc0, before, _ = self._before[key]
        rc1, after, error = self._run_one("after", scenario)
        tag = f"[{scenario}] "
        problems = [] if rc0 == rc1 else [f"{tag}exit code {rc0} became {rc1}: {error!r}"]
        if len(before) != len(after):
            return len(after), [
                *problems,
                f"{tag}{len(before)} starts became {len(after)} {error!r}",
            ]
        pairs = zip(
            *(sorted(calls, key=lambda c: c["argv"]) for calls in (before, after)), strict=True
        )
        for old, new in pairs:
            problems += self._compare_calls(old, new, edits, tag)
        return sum(call["server"] for call in after), problems

    def _compare_calls(self, old: dict, new: dict, edits: Mapping, tag: str) -> list[str]:
        problems = []
        strip = self.judge.strip_docker_env if old["container"] else list
        if strip(old["argv"]) != strip(new["argv"]):
            problems.append(f"{tag}arguments {old['argv']} became {new['argv']}")
        skip = self.judge.IGNORE | {name.encode() for name in edits}
        for name in sorted((old["env"].keys() | new["env"].keys()) - skip):
            one, two = old["env"].get(name), new["env"].get(name)
            if one != two:
                problems.append(f"{tag}{name!r} {one!r} became {two!r}")
        for name, wanted in edits.items():
            got = new["env"].get(name.encode())
            if new["server"] and got != (None if wanted is None else wanted.encode()):
                problems.append(f"{tag}{name} is {got!r}, wanted {wanted!r} ({new['argv']})")
        return problems
