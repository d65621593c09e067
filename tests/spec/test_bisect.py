"""How a search among changes is declared, and what it may not say."""

from pathlib import Path

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.bisect_kinds import search_kind
from fleetctl.spec.loader import load_bisect, load_minimize

HEAD = '[experiment]\nname = "b"\ntarget = "decode"\n'
TWO = '[[change]]\nname = "a"\nenv = { A = "1" }\n[[change]]\nname = "b"\nenv = { B = "1" }\n'
COMMITS = '[commits]\ngood = "v1"\nbad = "main"\n'
ROOT = Path(__file__).parents[2]


def written(tmp_path, body):
    path = tmp_path / "search.toml"
    path.write_text(HEAD + body)
    return path


def test_a_list_of_changes_and_a_range_of_commits_are_both_bisections(tmp_path):
    series = load_bisect(written(tmp_path, f"[bisect]\n{TWO}"))
    commits = load_bisect(written(tmp_path, COMMITS))

    assert [change.name for change in series.change] == ["a", "b"]
    assert (commits.commits.good, commits.commits.bad) == ("v1", "main")
    assert series.bisect.confidence == 0.95


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("[bisect]\n", "either `[[change]]` tables or `[commits]`"),
        (f"[bisect]\n{TWO}{COMMITS}", "either `[[change]]` tables or `[commits]`"),
        (f"[bisect]\n{TWO}{TWO}", "two changes are called `a`"),
        ('[bisect]\n[[change]]\nname = "a"\n', "neither `patch` nor `env`"),
        (f'[bisect]\nconfidence = "40%"\n{TWO}', "between 50% and 100%"),
        (f'[bisect]\ngood_rate = "9%"\nbad_rate = "10%"\n{TWO}', "must exceed `good_rate`"),
        (f"[bisect]\nconfirm_rums = 2\n{TWO}", "did you mean `confirm_runs`"),
        ('[commits]\ngood = "--all"\nbad = "main"\n', "not the name of one commit"),
        ('[commits]\ngood = "v1..v2"\nbad = "main"\n', "not the name of one commit"),
        (f'{COMMITS}path = "../other"\n', "stays inside it"),
        (
            f'{COMMITS}[[base.patch]]\nsource = "x.py"\npath = "x.py"\n',
            "holds flags only",
        ),
        (f"[bisect]\n{TWO}[trials]\nruns = 3\n", "unknown key"),
    ],
)
def test_a_mistake_in_a_bisection_is_told_with_its_place(tmp_path, body, says):
    with pytest.raises(InputError) as refused:
        load_bisect(written(tmp_path, body))

    assert says in refused.value.why
    assert "search.toml" in refused.value.why


def test_a_minimisation_needs_two_changes_and_an_error_that_means_something(tmp_path):
    with pytest.raises(InputError, match="can't be used"):
        load_minimize(written(tmp_path, '[minimize]\n[[change]]\nname = "a"\nenv = { A = "1" }\n'))
    with pytest.raises(InputError) as refused:
        load_minimize(written(tmp_path, f'[minimize]\nerror = "60%"\n{TWO}'))

    assert "between 0 and 50%" in refused.value.why


def test_a_file_says_by_its_tables_which_search_it_is(tmp_path):
    kinds = [
        search_kind(written(tmp_path, body))
        for body in (f"[bisect]\n{TWO}", COMMITS, f"[minimize]\n{TWO}", "[workload]\n", "x = [")
    ]

    assert kinds == ["bisect", "bisect", "minimize", None, None]
    assert search_kind(tmp_path / "absent.toml") is None


def test_the_shipped_searches_can_be_used():
    from fleetctl.workflow.bisect import read_bisect
    from fleetctl.workflow.minimize import read_minimize

    bisect = read_bisect(ROOT / "experiments/bisect.toml")
    minimize = read_minimize(ROOT / "experiments/minimize.toml")

    assert len(bisect.contents) > 2
    assert len(minimize.contents) > 2
