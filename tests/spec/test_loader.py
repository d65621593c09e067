"""Specs and inventories: what is accepted, and how precisely the rest is refused."""

from pathlib import Path

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

REPOSITORY = Path(__file__).parents[2]
MINIMAL = '[experiment]\nname = "x"\ntarget = "decode"\n'


def spec(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "spec.toml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        load_experiment(spec(tmp_path, text))
    assert caught.value.next_step
    return caught.value.why


def test_a_minimal_spec_has_the_story_s_defaults(tmp_path):
    experiment = load_experiment(spec(tmp_path, MINIMAL))

    assert (experiment.workload.kind, experiment.workload.sessions) == ("toolcall", 40)
    assert (experiment.ready.health.deadline, experiment.ready.health.poll) == (300.0, 5.0)
    assert experiment.ready.completion.poll == 3.0


@pytest.mark.parametrize(
    ("added", "line", "says"),
    [
        ("[trails]\nruns = 3\n", 4, "unknown key `trails`; did you mean `trials`?"),
        ("[trials]\nrnus = 3\n", 5, "unknown key `trials.rnus`; did you mean `runs`?"),
        ('[workload]\nkind = "toolcall"\nsesions = 3\n', 6, "did you mean `sessions`?"),
        ("[trials]\nruns = 0\n", 5, "greater than 0"),
        ('[trials]\nruns = "3"\n', 5, "`trials.runs` is a text, and should be a whole number"),
        (
            '[ready]\nhealth = { deadline = "5 parsecs", poll = "1s" }\n',
            5,
            "duration with its unit",
        ),
        ("lease = 60\n", None, "lease"),
        ('[env]\n"BAD-NAME" = "1"\n', 4, "can't be the name of an environment variable"),
        ("[env]\nA = 1\n", 5, '`env.A` is a number, and flags are texts: write it in quotes, "1"'),
        ("[env]\nA = 0\n", 5, '`env.A` is a number, and flags are texts: write it in quotes, "0"'),
        (
            "[env]\nA = 0.0\n",
            5,
            '`env.A` is a number, and flags are texts: write it in quotes, "0.0"',
        ),
        (
            "[control.env]\nA = 0\n",
            5,
            '`control.env.A` is a number, and flags are texts: write it in quotes, "0"',
        ),
        ("[env]\nA = 1.5\n", 5, 'in quotes, "1.5"'),
        ("[env]\nA = true\n", 5, 'such as "1" or "true", in quotes'),
        ("[env]\nA = []\n", 5, "write it in quotes, or false to unset it"),
        ("[control]\nenv = { A = 1 }\n", 5, "`control.env.A` is a number"),
        ('[[patch]]\nsource = "a.py"\n', 4, "exactly one of `module` and `path`"),
        ('[[patch]]\nsource = "a.py"\npath = "../../etc/passwd"\n', 4, "stays inside"),
        ('[[observer]]\nflag = "A"\npatch = "b"\n', 4, "exactly one of `flag` and `patch`"),
        ('[control]\nspec = "x.toml"\nenv = { A = "1" }\n', 4, "one of `spec`, `history`"),
        ('[verdict]\nexpect = "fixed"\n', 5, "eliminated"),
        ('[verdict]\nmetric = "failure"\n', 5, "did you mean `failures`"),
        (
            "[control]\nhistory = { corrupted = 1, sessions = 9 }\n"
            '[verdict]\nmetric = "failures"\n',
            0,
            'needs `failed` for metric = "failures"',
        ),
        ("[control]\nhistory = { failed = 1, sessions = 9 }\n", 0, "needs `corrupted`"),
        ('[verdict]\ntarget = "120%"\n', 5, "between 0 and 1"),
        ('[trials]\nstop = "sequential"\n', 4, "needs `looks`"),
    ],
)
def test_each_mistake_names_its_line_and_what_was_expected(tmp_path, added, line, says):
    text = added + MINIMAL if added.startswith("lease") else MINIMAL + added

    why = refusal(tmp_path, text)

    assert says in why
    if line:
        assert f"spec.toml:{line}:" in why


@pytest.mark.parametrize("lease", ["0s", "999ms", "0.5s", "169h"])
@pytest.mark.parametrize(
    "load", [load_experiment, load_matrix, load_bisect, load_minimize], ids=lambda f: f.__name__
)
def test_a_lease_that_no_host_would_grant_is_refused_wherever_a_spec_has_one(tmp_path, load, lease):
    with pytest.raises(InputError) as caught:
        load(spec(tmp_path, f'lease = "{lease}"\n' + MINIMAL))
    assert "`lease`: a lease lasts 1 s to 7 days" in caught.value.why


def test_the_shortest_lease_of_a_host_is_one_of_a_spec(tmp_path):
    assert load_experiment(spec(tmp_path, 'lease = "1s"\n' + MINIMAL)).lease == 1.0


@pytest.mark.parametrize(
    ("added", "says"),
    [
        ('[workload]\nkind = "command"\nargv = ["a\\u0000b"]\n', "NUL byte"),
        ('[[patch]]\nsource = "a\\u0000b"\npath = "x"\n', "NUL byte"),
        ('[[patch]]\nsource = "a"\npath = "x\\u0000"\n', "NUL byte"),
        ('[control]\nspec = "x\\u0000.toml"\n', "NUL byte"),
        ('[workload]\nkind = "command"\nargv = ["a"]\nsessions = 1000001\n', "1000000"),
        ("[control]\nhistory = { corrupted = 0, sessions = 1000001 }\n", "1000000"),
        (f'[env]\nA = "{"x" * 131_070}"\n', "131071 bytes of NAME=value"),
        (f'[workload]\nkind = "command"\nargv = ["{"x" * 131_072}"]\n', "131071 bytes"),
        ('[workload]\nkind = "command"\nargv = [""]\n', "`workload.argv`: is empty"),
        ('[workload]\nkind = "toolcall"\ncontext_tokens = 100000000000\n', "at most 10000000"),
        ('[workload]\nkind = "toolcall"\nmax_tokens = 100000000000\n', "at most 10000000"),
        ('[workload]\nkind = "toolcall"\nmin_context_tokens = 10000001\n', "at most 10000000"),
        ("[trials]\nseed = 9223372036854775808\n", "at most 9223372036854775807"),
        ("[ready]\nconcurrent = 10000000000\n", "at most 100000"),
        ('[ready]\nprogress = ["("]\n', "no regular expression"),
        ('[ready]\nprogress = [""]\n', "is empty"),
        ('[ready]\nstop = "0s"\n', "and not 0"),
        ('[ready]\nport = { deadline = "0s", poll = "1s" }\n', "and not 0"),
        ('[workload]\nkind = "toolcall"\ntotal_limit = "0s"\n', "and not 0"),
        ('[workload]\nkind = "command"\nargv = ["a"]\ndeadline = "0s"\n', "and not 0"),
        ('[ready]\ntool_call_layer = { deadline = "5s", poll = "1s" }\n', "`tool_call` is not"),
        ('[ready]\nconcurrent_layer = { deadline = "5s", poll = "1s" }\n', "`concurrent` is 0"),
        ('[[observer]]\nflag = "A-B"\n', "can't be the name of an environment variable"),
        ('[[observer]]\nflag = ""\n', "can't be the name of an environment variable"),
        ('[[patch]]\nsource = ""\npath = "x"\n', "is empty"),
        ('[[patch]]\nsource = "a.py"\npath = "."\n', "has to name the file"),
        ('[[patch]]\nsource = "a.py"\npath = "x/"\n', "has to name the file"),
        ('[[patch]]\nsource = "a.py"\npath = "x"\nmarker = ""\n', "is empty"),
        ('[[patch]]\nsource = "a.py"\npath = "x"\nmarker = "a\\nb"\n', "the end of a line"),
        (
            '[[patch]]\nsource = "a.py"\npath = "d/x.py"\n'
            '[[patch]]\nsource = "b.py"\npath = "d//x.py"\n',
            "two patches go to `d/x.py`",
        ),
        (
            '[[control.patch]]\nsource = "a.py"\nmodule = "a.b"\n'
            '[[control.patch]]\nsource = "b.py"\nmodule = "a.b"\n',
            "two patches go to `a.b`",
        ),
    ],
)
def test_what_no_system_can_run_or_count_is_refused(tmp_path, added, says):
    assert says in refusal(tmp_path, MINIMAL + added)


@pytest.mark.parametrize("target", ["", "  "])
def test_an_experiment_without_a_target_is_refused(tmp_path, target):
    why = refusal(tmp_path, MINIMAL.replace("decode", target))

    assert "the name of a host, a group or a role" in why


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 3000 + "]" * 3000,
        "a = " + "[" * 40 + "]" * 40,
        ".".join(["a"] * 5000) + " = 1",
        "[" + ".".join(["a"] * 5000) + "]",
        "a = " + "{ a = " * 3000 + "1" + " }" * 3000,
    ],
    ids=["arrays", "few arrays", "dotted key", "table", "inline tables"],
)
def test_what_nests_without_end_is_refused_and_no_traceback(tmp_path, text):
    assert "deep" in refusal(tmp_path, text + "\n")
    assert search_kind(tmp_path / "spec.toml") is None
    assert not is_matrix(tmp_path / "spec.toml")


def test_a_list_that_is_too_short_names_the_list(tmp_path):
    text = MINIMAL + '[matrix]\nbaseline = {}\ninteractions = [["keys"], []]\n'

    with pytest.raises(InputError) as caught:
        load_matrix(spec(tmp_path, text))

    assert "spec.toml:6: `matrix.interactions.0" in caught.value.why


def test_all_mistakes_are_reported_at_once(tmp_path):
    why = refusal(tmp_path, MINIMAL + '[trials]\nruns = 0\nordr = "x"\n')

    assert "runs" in why
    assert "ordr" in why


def test_a_missing_file_and_broken_toml_are_told_apart(tmp_path):
    with pytest.raises(InputError, match="can't read"):
        load_experiment(tmp_path / "absent.toml")
    assert "end of a table" in refusal(tmp_path, "[experiment")


def test_an_unset_flag_is_written_false(tmp_path):
    experiment = load_experiment(spec(tmp_path, MINIMAL + "[env]\nA = false\nB = ''\n"))

    assert experiment.env == {"A": False, "B": ""}


INVENTORY = """
[defaults]
user = "root"
identity = "keys/id"
tree = "/srv/dsv4"
python = "/usr/bin/python3"
unit = "sglang.service"
service_url = "http://127.0.0.1:30002"
model = "m"
roles = ["decode"]
[hosts.a]
address = "10.0.0.1"
[hosts.b]
address = "10.0.0.2"
user = "ops"
roles = ["prefill"]
[groups]
both = ["a", "b"]
"""


def test_defaults_are_filled_in_and_hosts_win(tmp_path):
    inventory = load_inventory(spec(tmp_path, INVENTORY))

    assert (inventory.hosts["a"].user, inventory.hosts["b"].user) == ("root", "ops")
    assert inventory.hosts["a"].identity == str(tmp_path / "keys/id")


def test_a_target_is_a_host_a_group_or_a_role(tmp_path):
    inventory = load_inventory(spec(tmp_path, INVENTORY))

    assert inventory.select("b") == ("b",)
    assert inventory.select("both") == ("a", "b")
    assert inventory.select("decode") == ("a",)
    with pytest.raises(InputError, match="did you mean `decode`"):
        inventory.select("decod")


def test_a_group_of_unknown_hosts_is_refused(tmp_path):
    with pytest.raises(InputError, match="unknown host `c`"):
        load_inventory(spec(tmp_path, INVENTORY.replace('["a", "b"]', '["a", "c"]')))


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "experiments").glob("*.toml")), ids=lambda p: p.name
)
def test_every_experiment_of_the_repository_loads(path):
    loaders = {"matrix": load_matrix, "bisect": load_bisect, "minimize": load_minimize}
    loader = loaders.get(path.stem.partition("_")[0], load_experiment)

    assert loader(path)


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "inventory").glob("*.toml")), ids=lambda p: p.name
)
def test_every_inventory_of_the_repository_loads(path):
    assert load_inventory(path).hosts


@pytest.mark.parametrize(
    ("load", "page", "key"),
    [
        (load_experiment, "spec.md", "hypothesis"),
        (load_matrix, "spec.md", "factor"),
        (load_bisect, "spec.md", "confirm_runs"),
        (load_minimize, "spec.md", "max_runs"),
        (load_inventory, "inventory.md", "hosts"),
    ],
)
def test_a_refusal_names_the_page_that_lists_the_keys_of_this_kind_of_file(
    tmp_path, load, page, key
):
    with pytest.raises(InputError) as caught:
        load(spec(tmp_path, "no_such_key = 1\n"))
    named = next(word for word in caught.value.next_step.split() if word.endswith(".md"))
    assert named == f"docs/reference/{page}"
    assert key in (REPOSITORY / named).read_text()


@pytest.mark.parametrize(
    "added",
    [
        '[trials]\norder = "{0}"\n',
        '[env]\n"{0}-" = "1"\n',
        '[[patch]]\nsource = "a"\npath = "b"\nbase_sha256 = "{0}"\n',
        '[workload]\nkind = "{0}"\n',
        "[{0}]\na = 1\n",
        "[trials]\nruns = {1}\n",
        "[env]\nA = {1}\n",
    ],
)
def test_a_value_that_is_far_too_long_is_not_repeated_whole(tmp_path, added):
    text = added.replace("{0}", "x" * 70_000).replace("{1}", "9" * 4_000)
    assert len(refusal(tmp_path, MINIMAL + text)) < 400


@pytest.mark.parametrize(
    ("added", "says"),
    [
        ('address = ""\n', "hosts.a.address"),
        ('model = " "\n', "hosts.a.model"),
        ('user = ""\n', "hosts.a.user"),
        ('connect_deadline = "0s"\n', "and not 0"),
        ("[groups]\ng = []\n", "group `g` is empty"),
        ('[groups]\ng = ["a", "a"]\n', "names `a` twice"),
    ],
)
def test_a_host_or_a_group_that_no_run_could_use_is_refused(tmp_path, added, says):
    keys = {
        "address": '"a"', "tree": '"/t"', "python": '"/p"', "unit": '"u.service"',
        "service_url": '"http://127.0.0.1:1"', "model": '"m"',
    }  # fmt: skip
    own = added.partition(" ")[0]
    lines = [f"{key} = {value}" for key, value in keys.items() if key != own]
    path = tmp_path / "inventory.toml"
    path.write_text("[hosts.a]\n" + "\n".join(lines) + "\n" + added)
    with pytest.raises(InputError) as caught:
        load_inventory(path)
    assert says in caught.value.why
