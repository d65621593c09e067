"""Every shape that serve scripts have, edited and run by bash before and after.

shapes.txt is the catalogue, each shape edited in three ways; shapes_more.txt holds more of the
same families, each edited in one of the three. `## name`, then the script; `@S@` is the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER = "python3 -m sglang.launch_server --tp 8"
FILES = {
    "x.env": "NOVA_A=7\n",
    "b.env": "NOVA_B=1\n",
    "inner.sh": "#!/bin/bash\nexec vllm serve inner\n",
    "launch.sh": "vllm serve sourced\n",
    "preflight2": '#!/bin/sh\nexec "$@"\n',
}
MORE_FILES = {
    **FILES,
    ".env": "NOVA_A=9\n",
    "conf/one.sh": ". ./conf/two.sh\nexport NOVA_B=1\n",
    "conf/two.sh": "export NOVA_A=5\n",
    "conf/a.env": "NOVA_A=6\n",
    "site.sh": "export NOVA_A=8\n",
    "unset.sh": "unset NOVA_A\n",
    "early.sh": "export NOVA_A=4\nreturn 0\nexport NOVA_A=5\n",
    "maybe_exit.sh": "[ -d /nonexistent-q ] && exit 3\nexport NOVA_C=1\n",
    "setflag.sh": 'export "$1=$2"\n',
    "lib.sh": 'use_nova() { export NOVA_A="$1"; }\n',
    "servelib.sh": 'serve_it() { vllm serve x "$@"; }\n',
    "ro.sh": "readonly NOVA_A=1\nexport NOVA_A\n",
    "venv/bin/activate": "VIRTUAL_ENV=/x\nexport VIRTUAL_ENV\n",
}
HOSTILE = 'it\'s "$x" `y`\\'
EVERY = ("0", None, HOSTILE)
ALONE = {"args": ["vllm", "serve", "q"]}
CALLED = {"args": ["vllm", "serve", "q"], "env": {"NOVA_A": "caller"}}
SCENARIOS = {"0": ({"args": ["a"]}, CALLED), None: (CALLED,), HOSTILE: (ALONE,)}

# What can't be exact is refused, with a code that says why. Everything else has to work.
REFUSED = {
    "eval cmd with prefix": ("unsupported", EVERY),
    "docker array": ("unsupported", EVERY),
    "tmux": ("unsupported", EVERY),
    "screen": ("unsupported", EVERY),
    "srun --export=NONE": ("unsupported", ("0", HOSTILE)),
    "readonly block": ("readonly", (None,)),
    "readonly late export elsewhere": ("readonly", (None,)),
    "readonly from other": ("readonly", EVERY),
    "placeholder": ("syntax", EVERY),
    "env array": ("unsupported", EVERY),
    "env -S": ("unsupported", EVERY),
    "integer": ("unsupported", (HOSTILE,)),
    "typeset -u already upper": ("unsupported", (HOSTILE,)),
    "one-line for": ("ambiguous", EVERY),
    "one-line for bg": ("ambiguous", EVERY),
    "parallel servers distinct exports": ("ambiguous", EVERY),
    "array elem": ("ambiguous", ("0", HOSTILE)),
    **dict.fromkeys(
        ("mapfile", "readarray", "read -a", "coproc by name"), ("ambiguous", ("0", HOSTILE))
    ),
    "alias of export": ("unsupported", EVERY),
    "bash script.sh": ("no-server", EVERY),
    "exec script": ("no-server", EVERY),
    "prefix source": ("no-server", EVERY),
    "alias": ("unsupported", EVERY),
    "trap USR1": ("unsupported", EVERY),
    'set -- env "$@"': ("unsupported", EVERY),
}
REFUSED_MORE: dict[str, tuple[str, tuple[str | None, ...]]] = {
    **dict.fromkeys(
        (
            "sourced function file that serves",
            "find exec",
            "pipe to bash",
        ),
        ("no-server", EVERY),
    ),
    **dict.fromkeys(
        (
            "sourced sets readonly",
            "sourced readonly, other branch",
        ),
        ("readonly", EVERY),
    ),
    **dict.fromkeys(("two servers between exports",), ("ambiguous", EVERY)),
    **dict.fromkeys(
        (
            "trap ERR sets",
            "trap DEBUG",
            "array of env to env, two",
            "array of env appended",
            "env words in a string",
            "env from cat",
            "env from grep",
            "su -c",
            "runuser",
            "sh -c double quotes",
            "command in array with env",
            "mpirun -x",
            "mpirun -x with value",
            "ssh",
            "systemd-run",
            "env with $(printf)",
            "env -u then unknown",
            "command substitution as wrapper",
            "wrapper variable holding env",
            "wrapper array holding env",
            "env -S long",
            "set -k",
            "bash -c with escaped dollar",
            "heredoc to bash unquoted with expansions",
            "trap RETURN sets",
            "trap on CHLD",
        ),
        ("unsupported", EVERY),
    ),
    "readonly export on one line": ("readonly", (None,)),
    "readonly dynamic": ("readonly", (None,)),
    "env unknown then known": ("unsupported", (None,)),
    "sudo --preserve-env=": ("unsupported", ("0", HOSTILE)),
    "docker run --env-file": ("unsupported", (None,)),
    "array element assignment": ("ambiguous", ("0", HOSTILE)),
}


@dataclass(frozen=True)
class Shape:
    name: str
    text: str
    touch: tuple[int, ...]


def shapes(file: str) -> Iterator[Shape]:
    content = (Path(__file__).parent / file).read_text(encoding="utf-8")
    for block in content.removeprefix("## ").split("\n## "):
        title, _, text = block.partition("\n")
        lines = re.search(r" \[lines ([\d ]+)\]", title)
        touch = tuple(int(n) for n in lines[1].split()) if lines else ()
        name = re.sub(r" \[lines.*", "", title)
        yield Shape(name, text.rstrip("\n").replace("@S@", SERVER) + "\n", touch)


SHAPES, MORE = list(shapes("shapes.txt")), list(shapes("shapes_more.txt"))
ONE_WAY_EACH = [(shape, EVERY[number % 3]) for number, shape in enumerate(MORE)]


def expected(refused: dict, name: str, wanted: str | None) -> str:
    code, values = refused.get(name, ("", ()))
    return f"refused {code}" if wanted in values else "passed"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_shape_is_edited_exactly_or_refused_with_its_code(shape, oracle):
    for wanted in EVERY:
        oracle.scenarios = SCENARIOS[wanted]
        outcome = oracle.try_edit(shape.text, {"NOVA_A": wanted}, FILES, shape.touch)
        shown = f"{wanted!r}: {outcome.problems}\n{outcome.text}"
        want = expected(REFUSED, shape.name, wanted)
        assert (outcome.status, []) == (want, outcome.problems), shown


@pytest.mark.parametrize(
    ("shape", "wanted"), ONE_WAY_EACH, ids=[shape.name for shape, _ in ONE_WAY_EACH]
)
def test_one_more_shape_is_edited_exactly_or_refused_with_its_code(shape, wanted, oracle):
    oracle.scenarios = SCENARIOS[wanted]
    outcome = oracle.try_edit(shape.text, {"NOVA_A": wanted}, MORE_FILES, shape.touch)
    want = expected(REFUSED_MORE, shape.name, wanted)
    assert (outcome.status, []) == (want, outcome.problems), f"{outcome.problems}\n{outcome.text}"


def test_every_refusal_named_here_belongs_to_a_shape():
    assert set(REFUSED) <= {shape.name for shape in SHAPES}
    assert set(REFUSED_MORE) <= {shape.name for shape in MORE}
