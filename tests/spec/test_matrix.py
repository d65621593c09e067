"""A matrix expands to stable cells, and one that can't be is refused before it is expanded."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import InputError
from fleetctl.spec.generators import half_fraction, parse_generator
from fleetctl.spec.loader import load_matrix

TEXT = """
[experiment]
name = "m"
target = "lab"
[matrix]
baseline = { runner = "captured", keys = "bf16" }
exclude = [{ runner = "eager", keys = "fp8" }]
[[factor]]
name = "runner"
[[factor.level]]
name = "eager"
[[factor.level]]
name = "captured"
env = { A = "1" }
[[factor]]
name = "keys"
[[factor.level]]
name = "bf16"
[[factor.level]]
name = "fp8"
env = { B = "0" }
"""
EXCLUDE = 'exclude = [{ runner = "eager", keys = "fp8" }]'


def matrix(tmp_path: Path, text: str = TEXT):
    path = tmp_path / "matrix.toml"
    path.write_text(text)
    return load_matrix(path)


def factors_text(sizes: dict[str, int], rules: str = "", rest: str = "") -> str:
    """Return a matrix of factors with levels `l0` (the baseline), `l1`, …"""
    baseline = ", ".join(f'{name} = "l0"' for name in sizes)
    lines = ['[experiment]\nname = "m"\ntarget = "lab"', f"[matrix]\nbaseline = {{ {baseline} }}"]
    lines.append(rules)
    for name, size in sizes.items():
        lines.append(f'[[factor]]\nname = "{name}"')
        lines += [
            f'[[factor.level]]\nname = "l{level}"\nenv = {{ {name} = "{level}" }}'
            for level in range(size)
        ]
    return "\n".join([*lines, rest])


def test_the_product_without_the_excluded_baseline_first(tmp_path):
    cells = matrix(tmp_path).cells()

    assert [cell.name for cell in cells] == [
        "runner=captured,keys=bf16",
        "runner=eager,keys=bf16",
        "runner=captured,keys=fp8",
    ]
    assert dict(cells[2].env) == {"A": "1", "B": "0"}


def test_a_cell_s_digest_follows_its_content_only(tmp_path):
    before = {cell.name: cell.digest for cell in matrix(tmp_path).cells()}
    after = {
        cell.name: cell.digest
        for cell in matrix(tmp_path, TEXT.replace('A = "1"', 'A = "2"')).cells()
    }
    renamed = matrix(tmp_path, TEXT.replace("keys", "dtype").replace('"eager"', '"plain"'))

    assert before["runner=eager,keys=bf16"] == after["runner=eager,keys=bf16"]
    assert before["runner=captured,keys=bf16"] != after["runner=captured,keys=bf16"]
    assert {cell.digest for cell in renamed.cells()} == set(before.values())


def test_patches_and_flags_of_every_cell_are_in_every_cell(tmp_path):
    common = TEXT.replace("[[factor]]", '[env]\nC = "3"\n[[factor]]', 1)

    assert all(dict(cell.env)["C"] == "3" for cell in matrix(tmp_path, common).cells())


def test_a_level_may_override_the_workload(tmp_path):
    text = TEXT.replace('env = { B = "0" }', 'workload = { sessions = 8, think_time = "2s" }')
    text += '[workload]\nkind = "toolcall"\nrounds = 5\ntotal_limit = "30s"\n'
    base, _, other = (cell for cell in matrix(tmp_path, text).cells())

    assert (base.workload.sessions, base.workload.think_time) == (40, 0.0)
    assert (other.workload.sessions, other.workload.think_time) == (8, 2.0)
    assert (other.workload.rounds, other.workload.total_limit) == (5, 30.0)


def test_cells_that_differ_in_the_workload_only_share_a_service(tmp_path):
    text = TEXT.replace(EXCLUDE, "").replace('env = { B = "0" }', "workload = { sessions = 8 }")
    text = text.replace('"bf16"\n[[', '"bf16"\n[[')

    services = [cell.service for cell in matrix(tmp_path, text).cells()]

    assert services == ["runner=captured", "runner=eager", "runner=eager", "runner=captured"]


def test_an_exclusion_may_name_several_levels_of_a_factor(tmp_path):
    rules = 'exclude = [{ a = ["l1", "l2"], b = "l1" }]'

    cells = matrix(tmp_path, factors_text({"a": 3, "b": 2}, rules)).cells()

    assert [cell.name for cell in cells] == ["a=l0,b=l0", "a=l0,b=l1", "a=l1,b=l0", "a=l2,b=l0"]


def test_included_cells_are_added_with_the_rest_at_baseline(tmp_path):
    rules = 'fraction = "half"\ninclude = [{ a = "l1" }]'
    cells = matrix(tmp_path, factors_text({"a": 2, "b": 2, "c": 2}, rules)).cells()

    assert [cell.name for cell in cells] == [
        "a=l0,b=l0,c=l0",
        "a=l0,b=l1,c=l1",
        "a=l1,b=l0,c=l1",
        "a=l1,b=l1,c=l0",
        "a=l1,b=l0,c=l0",
    ]


def test_factors_of_more_levels_are_crossed_with_the_fraction(tmp_path):
    text = factors_text({"a": 2, "b": 2, "probe": 3, "c": 2}, 'generators = ["c = a*b"]')

    cells = matrix(tmp_path, text).cells()

    assert len(cells) == 4 * 3
    assert {dict(cell.levels)["probe"] for cell in cells} == {"l0", "l1", "l2"}


@given(factors=st.integers(3, 7))
def test_a_half_fraction_is_balanced_and_holds_the_baseline(tmp_path_factory, factors):
    names = [f"f{index}" for index in range(factors)]
    text = factors_text(dict.fromkeys(names, 2), 'fraction = "half"')
    cells = matrix(tmp_path_factory.mktemp("half"), text).cells()

    assert len(cells) == 2 ** (factors - 1)
    assert all(level == "l0" for _, level in cells[0].levels)
    for name in names:
        at_one = [cell for cell in cells if dict(cell.levels)[name] == "l1"]
        assert len(at_one) == len(cells) / 2
        for other in names:
            both = [cell for cell in at_one if dict(cell.levels)[other] == "l1"]
            assert other == name or len(both) == len(cells) / 4 or factors == 2


def test_two_to_the_power_of_twenty_cells_are_refused_at_once_with_the_number(tmp_path):
    text = factors_text({f"f{index}": 2 for index in range(20)})

    with pytest.raises(InputError, match=r"1,048,576 cells \(2 f0 x .*fraction = \"half\""):
        matrix(tmp_path, text)


def test_a_fraction_small_enough_of_a_product_too_large_is_made(tmp_path):
    names = [f"f{index}" for index in range(16)]
    generators = ", ".join(
        f'"{name} = f0*f1*f{2 + index % 6}"' for index, name in enumerate(names[8:])
    )
    text = factors_text(dict.fromkeys(names, 2), f"generators = [{generators}]")

    assert len(matrix(tmp_path, text).cells()) == 2**8


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('runner = "captured",', "", "one level of every factor; it lacks runner"),
        ('runner = "captured",', 'runner = "captrued",', "did you mean `captured`"),
        (EXCLUDE, 'exclude = [{ runer = "eager" }]', "unknown factor `runer`; did you mean"),
        (EXCLUDE, 'exclude = [{ keys = "bf16" }]', "baseline cell is excluded"),
        (EXCLUDE, 'exclude = [{ keys = "fp8" }]', "level `fp8` of factor `keys` is empty"),
        (
            EXCLUDE,
            EXCLUDE + '\ninclude = [{ runner = "eager", keys = "fp8" }]',
            "`runner=eager,keys=fp8` is included and excluded",
        ),
        ('name = "fp8"', 'name = "bf16"', "must differ"),
        ('name = "keys"', 'name = "runner"', "factor names must differ"),
        ('env = { B = "0" }', "", "levels `bf16` and `fp8` are equal"),
        (
            'env = { B = "0" }',
            'env = { A = "0" }',
            "flag `A` is set by factor `runner` and by factor `keys`",
        ),
        (EXCLUDE, 'interactions = [["runner", "kees"]]', "unknown factor `kees`"),
        (EXCLUDE, 'interactions = [["runner", "runner"]]', "can't interact with itself"),
        (EXCLUDE, 'fraction = "half"', "three factors of two levels"),
        (EXCLUDE, 'generators = ["keys = runner"]', "is no generator"),
        (EXCLUDE, 'generators = ["keys = runner*overlap"]', "unknown factor `overlap`"),
        (EXCLUDE, 'generators = ["keys = runner*runner"]', "names a factor twice"),
        (EXCLUDE, 'order = "fewest_restarts"', "boot_per_run = false"),
        ("[[factor]]", '[env]\nA = "7"\n[[factor]]', "flag `A` is set by every cell and by factor"),
        (
            "[[factor]]",
            '[[observer]]\nflag = "B"\n[[factor]]',
            "switches the observer B: write observer = true",
        ),
        (
            "[[factor]]",
            '[env]\nLOOK = "1"\n[[observer]]\nflag = "LOOK"\n[[factor]]',
            "the observer LOOK is on in every cell",
        ),
        (
            "[[factor]]",
            "[trials]\nruns = 1000\nlooks = []\nstop = 'sequential'\n[[factor]]",
            "looks",
        ),
        ('env = { B = "0" }', "workload = { sesions = 3 }", "`sesions`; did you mean `sessions`"),
        ('env = { B = "0" }', "workload = { sessions = 0 }", "level `fp8` overrides `sessions`"),
        ('env = { B = "0" }', 'workload = { kind = "command" }', "unknown workload key `kind`"),
    ],
)
def test_impossible_matrices_are_refused(tmp_path, old, new, says):
    assert old in TEXT

    with pytest.raises(InputError, match=says):
        matrix(tmp_path, TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ('generators = ["a = b*c"]\nfraction = "half"', "not both"),
        ('generators = ["a = b*c", "b = c*d"]', "which is generated itself"),
        ('generators = ["a = b*c", "a = c*d"]', "give the same factor"),
        ('generators = ["a = b*three"]', "`three` has 3"),
    ],
)
def test_impossible_fractions_are_refused(tmp_path, rules, says):
    with pytest.raises(InputError, match=says):
        matrix(tmp_path, factors_text({"a": 2, "b": 2, "c": 2, "d": 2, "three": 3}, rules))


def test_too_many_runs_are_refused_with_the_number(tmp_path):
    text = factors_text({"a": 32, "b": 32}, rest="[trials]\nruns = 20\n")

    with pytest.raises(InputError, match="20,480 runs"):
        matrix(tmp_path, text)


def test_generators_are_spelled_as_they_are_written():
    assert str(parse_generator(" canary=runner * keys ")) == "canary = runner*keys"
    assert str(half_fraction("abcd")) == "d = a*b*c"


@pytest.mark.parametrize("twice", ['["a", "b"], ["a", "b"]', '["a", "b"], ["b", "a"]'])
def test_an_interaction_that_is_named_twice_is_refused_before_it_is_measured(tmp_path, twice):
    with pytest.raises(InputError, match="named twice"):
        matrix(tmp_path, factors_text({"a": 2, "b": 2}, f"interactions = [{twice}]"))


def test_a_rule_that_names_no_level_leaves_nothing_out_and_is_refused(tmp_path):
    with pytest.raises(InputError, match="names no level of factor `a`"):
        matrix(tmp_path, factors_text({"a": 2, "b": 2}, 'exclude = [{ a = [], b = "l1" }]'))
