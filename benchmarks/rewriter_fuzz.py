"""Fuzz the script rewriter: scripts from a grammar, bash with stub servers as the oracle.

    python benchmarks/rewriter_fuzz.py --minutes 10 --seed 1

Each script is made of the shapes that real serve scripts have (tests/environment/grammar.py). It is
run before and after the edit, in several ways (arguments, inherited values): every server must
see the wanted value, everything else must be as before, and a second edit must change nothing
(tests/environment/oracle.py). Prints scripts tried, refused (by code), without a server, and
failed; failures are kept whole.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import itertools
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Protocol

TESTS = Path(__file__).parents[1] / "tests" / "environment"


class Outcome(Protocol):
    """What became of one script; see tests/environment/oracle.py."""

    status: str
    problems: list[str]


def load(name: str) -> ModuleType:
    """Import a module that the tests use, too."""
    spec = importlib.util.spec_from_file_location(name, TESTS / f"{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Fuzz for a while and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=sys.maxsize, help="stop after so many scripts")
    parser.add_argument("--most", type=int, default=20, help="stop after so many failures")
    parser.add_argument("--keep", type=Path, help="folder for the scripts that failed")
    options = parser.parse_args()
    deadline_s = time.monotonic() + options.minutes * 60
    counts: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="fuzz.") as folder:
        oracle = load("oracle").Oracle(Path(folder))
        grammar = load("grammar")
        for seed in itertools.count(options.seed):
            enough = counts.total() >= options.count or counts["failed"] >= options.most
            if enough or time.monotonic() > deadline_s:
                break
            script, edits = grammar.sample(seed)
            outcome = oracle.try_edit(script.text, edits, script.files)
            counts["failed" if outcome.problems else outcome.status] += 1
            if outcome.problems:
                report(seed, script.text, edits, outcome, options.keep)
    print(f"scripts tried: {counts.total()}, from seed {options.seed}")
    for status, count in sorted(counts.items()):
        print(f"  {status}: {count}")
    print(f"failures: {counts['failed']}")
    return 1 if counts["failed"] else 0


def report(
    seed: int, text: str, edits: Mapping[str, str | None], outcome: Outcome, keep: Path | None
) -> None:
    """Show a failure; keep its script where a folder is given."""
    print(f"---- seed {seed} {edits}", flush=True)
    for problem in outcome.problems[:4]:
        print("  ", problem[:300], flush=True)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{seed}.sh").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
