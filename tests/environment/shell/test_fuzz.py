"""A few scripts of the fuzz run (benchmarks/rewriter_fuzz.py), so that it can't rot."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


def load_grammar():
    path = Path(__file__).parents[1] / "grammar.py"
    spec = importlib.util.spec_from_file_location("grammar", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["grammar"] = module
    spec.loader.exec_module(module)
    return module


GRAMMAR = load_grammar()


@pytest.mark.parametrize("seed", range(15))
def test_a_script_made_at_random_is_edited_exactly_or_refused(seed, oracle):
    script, edits = GRAMMAR.sample(seed)
    outcome = oracle.try_edit(script.text, edits, script.files)
    assert outcome.problems == [], f"{edits}\n{script.text}\n----\n{outcome.text}"


def test_a_seed_always_makes_the_same_script():
    assert GRAMMAR.sample(7) == GRAMMAR.sample(7)
