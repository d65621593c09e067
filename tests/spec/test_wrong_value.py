"""A value of the wrong kind is told in TOML's words, with the way to write it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter

from fleetctl.errors import InputError
from fleetctl.spec.bisect import Bisect, Minimize
from fleetctl.spec.experiment import Experiment
from fleetctl.spec.inventory import Inventory
from fleetctl.spec.loader import (
    load_bisect,
    load_experiment,
    load_inventory,
    load_matrix,
    load_minimize,
)
from fleetctl.spec.matrix import Matrix
from fleetctl.spec.wrong_value import PATTERNS

EXPERIMENT = '[experiment]\nname = "e"\ntarget = "decode"\n'
HOST = """[hosts.a]
address = "a"
tree = "/t"
python = "/p"
unit = "u.service"
service_url = "http://127.0.0.1:1"
model = "m"
"""
# what pydantic says of Python's types, none of which stands in a TOML file
PYTHON = ("tuple", "instance of", "dictionary", "valid string", "valid integer", "valid boolean")
PYDANTIC = ("discriminator", "expected tags", "should match pattern", "after validation")
LITERALS = ("3", "3.5", "0", "0.0", "true", '"x y"', "[]", "[1]", "{}", "[{}]", "2026-01-02")


def refusal(tmp_path, text, load=load_experiment):
    path = tmp_path / "spec.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(path)
    return caught.value.why


@pytest.mark.parametrize(
    ("added", "says"),
    [
        (
            '[patch]\nsource = "a"\n',
            ":4: `patch` is a table, and should be a list: write [[patch]]",
        ),
        ("[[trials]]\nruns = 3\n", ":4: `trials` is a list, and should be a table: write [trials]"),
        ("[trials]\nlooks = 4\n", ":5: `trials.looks` is a number, and should be a list: write it"),
        ("[trials]\nruns = 3.5\n", ":5: `trials.runs` is 3.5, and should be a whole number"),
        ("[trials]\nruns = 0\n", ":5: `trials.runs` is 0, and should be greater than 0"),
        ("[trials]\nboot_per_run = 1\n", ":5: `trials.boot_per_run` is a number, and should be"),
        ('[trials]\norder = "random"\n', 'is `random`, and should be "interleaved", "randomised"'),
        (
            "[workload]\nsessions = 3\n",
            ':4: `workload.kind` is missing: it is "toolcall" or "command"',
        ),
        ('[workload]\nkind = "toolcal"\n', '"toolcall" or "command"; did you mean `toolcall`?'),
        (
            '[workload]\nkind = "command"\nargv = ["x"]\nrounds = 3\n',
            ":7: `workload.rounds` is a key of another kind of `workload`",
        ),
        ('[workload]\nkind = "command"\nargv = []\n', "holds 0, and should hold at least 1"),
        (
            '[workload]\nkind = "toolcall"\nlease = "5s"\n',
            ":6: unknown key `workload.lease`; `lease` belongs at the top of the file",
        ),
        ("[control.trials]\nruns = 1\n", "`control.trials`; `trials` is a table of its own"),
        ("[[patch]]\nsource = 3\n", "`patch.0.source` is a number, and should be a text: write it"),
        (
            '[[patch]]\nsource = "a.py"\nmodule = "a/b.py"\n',
            ":6: `patch.0.module` is `a/b.py`, and should be a module as in `import`",
        ),
        ('env = "A=1"\n', ": `env` is a text, and should be a table: write env = { … }"),
    ],
)
def test_a_newcomer_s_mistake_is_told_with_the_way_to_write_it(tmp_path, added, says):
    text = added + EXPERIMENT if added.startswith("env") else EXPERIMENT + added

    assert says in refusal(tmp_path, text)


@pytest.mark.parametrize(
    ("load", "added", "says"),
    [
        (
            load_experiment,
            "[trials]\nmetric = 1\n",
            "`trials.metric`; `metric` belongs in [verdict]",
        ),
        (load_bisect, "[bisect]\nmetric = 1\n", "`bisect.metric`; `metric` belongs in [verdict]"),
        (
            load_minimize,
            "[minimize]\n[verdict]\nmetric = 1\n",
            "unknown key `verdict`; `metric` belongs in [minimize]",
        ),
        (load_minimize, "[minimize]\n[verdict]\nhope = 1\n", ":5: unknown key `verdict`"),
        (
            load_bisect,
            "[minimise]\nmax_runs = 1\nconfirm_runs = 1\n",
            "`minimise`; `max_runs` and `confirm_runs` belong in [bisect]",
        ),
        (load_experiment, "[tirals]\nruns = 1\n", "`tirals`; did you mean `trials`?"),
    ],
)
def test_a_key_in_another_table_than_its_own_is_told_which(tmp_path, load, added, says):
    assert says in refusal(tmp_path, EXPERIMENT + added, load)


def test_a_mistake_in_the_defaults_of_an_inventory_is_told_once_and_there(tmp_path):
    text = f'[defaults]\nprot = 22\nport = "22"\n{HOST}{HOST.replace("hosts.a", "hosts.b")}'

    why = refusal(tmp_path, text, load_inventory)

    assert why.splitlines() == [
        "spec.toml:3: `defaults.port` is a text, and should be a whole number:"
        " write it without quotes",
        "       spec.toml:2: unknown key `defaults.prot`; did you mean `port`?",
    ]


def test_a_host_that_overrides_a_default_answers_for_its_own_value(tmp_path):
    why = refusal(tmp_path, f'[defaults]\nport = 22\n{HOST}port = "23"\n', load_inventory)

    assert why.startswith("spec.toml:10: `hosts.a.port` is a text")


@pytest.mark.parametrize("defaults", ["defaults = 3\n", "[[defaults]]\nport = 22\n"])
def test_defaults_that_are_no_table_are_refused_rather_than_left_out(tmp_path, defaults):
    assert "`defaults` is no table" in refusal(tmp_path, defaults + HOST, load_inventory)


@pytest.mark.parametrize(
    ("load", "model", "hint"),
    [
        (load_experiment, Experiment, ""),
        (load_matrix, Matrix, "[matrix]\n"),
        (load_bisect, Bisect, "[bisect]\n"),
        (load_minimize, Minimize, "[minimize]\n"),
        (load_inventory, Inventory, ""),
    ],
)
def test_no_value_of_any_key_is_answered_in_the_words_of_python(tmp_path, load, model, hint):
    path = tmp_path / "spec.toml"
    for key, literal in itertools.product(_keys(model), LITERALS):
        tables = "" if hint and key.startswith(hint[1:-2]) else hint
        path.write_text(f"{key.format(literal)}\n{tables}", encoding="utf-8")
        with pytest.raises(InputError) as caught:
            load(path)
        for words in (*PYTHON, *PYDANTIC):
            assert words not in caught.value.why, (key, literal, caught.value.why)


def test_every_pattern_of_a_key_has_words():
    found = set(
        itertools.chain.from_iterable(
            _patterns(TypeAdapter(model).json_schema())
            for model in (Experiment, Matrix, Bisect, Minimize, Inventory)
        )
    )

    assert found == set(PATTERNS)


def _keys(model: type[BaseModel]) -> Iterator[str]:
    """Yield a TOML line for every key of a spec's first two levels, with a place for its value."""
    for name, field in model.model_fields.items():
        yield f"{name} = {{}}"
        listed = "tuple" in str(field.annotation)
        for inner in _models_in(field.annotation):
            for key in inner.model_fields:
                table = f"{{{{ {key} = {{}} }}}}"
                yield f"{name} = [{table}]" if listed else f"{name} = {table}"


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(pattern := schema.get("pattern"), str):
            yield pattern
        schema = list(schema.values())
    for inner in schema if isinstance(schema, list) else ():
        yield from _patterns(inner)


def _choices(model: type[BaseModel]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield table, key and choices of every key of a few texts that has no default."""
    for name, field in model.model_fields.items():
        for inner in _models_in(field.annotation):
            for key, choice in inner.model_fields.items():
                if choice.is_required() and get_origin(choice.annotation) is Literal:
                    yield name, key, list(get_args(choice.annotation))


@pytest.mark.parametrize(
    ("load", "model", "text"),
    [
        (load_experiment, Experiment, EXPERIMENT),
        (load_matrix, Matrix, f'{EXPERIMENT}[matrix]\nbaseline = {{ a = "b" }}\n'),
        (load_bisect, Bisect, f"{EXPERIMENT}[bisect]\n"),
        (load_minimize, Minimize, f"{EXPERIMENT}[minimize]\n"),
        (load_inventory, Inventory, HOST),
    ],
)
def test_a_missing_choice_names_what_there_is_to_choose_from(tmp_path, load, model, text):
    for table, key, words in _choices(model):
        why = refusal(tmp_path, f"{text}[{table}]\n", load)

        (line,) = [each for each in why.splitlines() if f"`{table}.{key}`" in each]
        assert all(f'"{word}"' in line.partition(" is missing: it is ")[2] for word in words)
    assert (model is Inventory) != bool([*_choices(model)])
