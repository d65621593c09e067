"""Every shape that serve scripts have, edited in three ways and run by bash before and after.

shapes.txt is the catalogue: `## name`, then the script; `@S@` stands for the server.
"""

from __future__ import annotations

import re
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
    "bash script.sh": ("no-server", EVERY),
    "exec script": ("no-server", EVERY),
    "prefix source": ("no-server", EVERY),
    "alias": ("unsupported", EVERY),
    "trap USR1": ("unsupported", EVERY),
    'set -- env "$@"': ("unsupported", EVERY),
}


@dataclass(frozen=True)
class Shape:
    name: str
    text: str
    touch: tuple[int, ...]


def shapes() -> list[Shape]:
    found = []
    content = (Path(__file__).parent / "shapes.txt").read_text(encoding="utf-8")
    for block in content.removeprefix("## ").split("\n## "):
        title, _, text = block.partition("\n")
        lines = re.search(r" \[lines ([\d ]+)\]", title)
        touch = tuple(int(n) for n in lines[1].split()) if lines else ()
        name = re.sub(r" \[lines.*", "", title)
        found.append(Shape(name, text.rstrip("\n").replace("@S@", SERVER) + "\n", touch))
    return found


def expected(name: str, wanted: str | None) -> str:
    code, values = REFUSED.get(name, ("", ()))
    return f"refused {code}" if wanted in values else "passed"


@pytest.mark.parametrize("shape", shapes(), ids=lambda shape: shape.name)
def test_a_shape_is_edited_exactly_or_refused_with_its_code(shape, oracle):
    for wanted in EVERY:
        oracle.scenarios = SCENARIOS[wanted]
        outcome = oracle.try_edit(shape.text, {"NOVA_A": wanted}, FILES, shape.touch)
        shown = f"{wanted!r}: {outcome.problems}\n{outcome.text}"
        assert (outcome.status, []) == (expected(shape.name, wanted), outcome.problems), shown


def test_every_refusal_named_here_belongs_to_a_shape():
    assert set(REFUSED) <= {shape.name for shape in shapes()}
