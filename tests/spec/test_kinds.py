"""A file of one kind given where another is wanted is named, with the command that takes it."""

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.bisect_kinds import search_kind
from fleetctl.spec.kinds import is_matrix
from fleetctl.spec.loader import (
    load_bisect,
    load_experiment,
    load_inventory,
    load_matrix,
    load_minimize,
)

HEAD = '[experiment]\nname = "x"\ntarget = "t"\n'
FILES = {
    "experiment": f'{HEAD}[env]\nA = "1"\n',
    "matrix": f"{HEAD}[matrix]\nbaseline = {{}}\n",
    "bisect": f'{HEAD}[commits]\ngood = "a"\nbad = "b"\n',
    "minimize": f"{HEAD}[minimize]\n",
    "inventory": "[hosts.a]\n",
}
LOADERS = {
    "experiment": load_experiment,
    "matrix": load_matrix,
    "bisect": load_bisect,
    "minimize": load_minimize,
    "inventory": load_inventory,
}
USES = {name: f"fleetctl {name}" for name in FILES} | {
    "experiment": "fleetctl run",
    "inventory": "--inventory",
}


@pytest.mark.parametrize("wanted", LOADERS)
@pytest.mark.parametrize("given", FILES)
def test_the_command_that_takes_a_file_is_named_where_another_got_it(tmp_path, given, wanted):
    path = tmp_path / "spec.toml"
    path.write_text(FILES[given])

    if given == wanted:
        return
    with pytest.raises(InputError) as caught:
        LOADERS[wanted](path)

    assert f"{USES[given]} {path}" in caught.value.next_step
    assert "unknown key" not in caught.value.why


def test_a_list_of_changes_alone_is_a_bisection_or_a_minimisation(tmp_path):
    path = tmp_path / "spec.toml"
    change = '[[change]]\nname = "{}"\nenv = {{ A = "1" }}\n'
    path.write_text(HEAD + change.format("a") + change.format("b"))

    assert load_bisect(path).change == load_minimize(path).change
    with pytest.raises(InputError, match="is a bisection or a minimisation, not an experiment"):
        load_experiment(path)


@pytest.mark.parametrize(
    ("body", "matrix", "search"),
    [
        ('[[factor]]\nname = "a"\n', True, None),
        ("[matrix]\n", True, None),
        ('[[change]]\nname = "a"\n', False, "bisect"),
        ("[commits]\n", False, "bisect"),
        ("[minimize]\n", False, "minimize"),
        ("[env]\n", False, None),
    ],
)
def test_check_and_plan_take_an_unfinished_spec_for_what_it_will_be(tmp_path, body, matrix, search):
    path = tmp_path / "spec.toml"
    path.write_text(HEAD + body)

    assert (is_matrix(path), search_kind(path)) == (matrix, search)


def test_a_file_that_tells_nothing_is_judged_by_its_keys(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text("[other]\n")

    with pytest.raises(InputError, match="can't be used"):
        load_experiment(path)


def test_a_file_that_is_no_text_is_told_so_in_words(tmp_path):
    path = tmp_path / "spec.toml"
    path.write_bytes(b'[experiment]\nname = "\xff"\n')

    with pytest.raises(InputError) as caught:
        load_experiment(path)

    assert caught.value.why == "it is no UTF-8 text: its byte 22 is 0xff"
