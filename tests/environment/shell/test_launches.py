"""Which commands start a server, and what the programs before it let through."""

from __future__ import annotations

import pytest

from fleetctl.environment.shell.analysis import Caller, analyse
from fleetctl.environment.shell.command_line import Payload
from fleetctl.environment.shell.dataflow import HOLE
from fleetctl.environment.shell.parser import system_parser

PARSER = system_parser()


def launches(text: str):
    return analyse(text.encode(), PARSER).launches


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m sglang.launch_server --tp 8",
        "exec /opt/venv/bin/python -u -m vllm.entrypoints.openai.api_server",
        '"$VENV/bin/python" -m payload.engine --port 1',
        "vllm serve x",
        "$VLLM serve x",
        "${PY:-python3} serve_dsv4.py",
        "nohup numactl -N 0 env A=1 uv run vllm serve x &",
        "timeout -k 5 1h ./with-libs.sh sglang serve x",
        "torchrun --nproc 8 -m sglang.launch_server",
        "docker run --gpus all -p 1:1 vllm/vllm-openai:v1 --model x",
        "trtllm-serve x",
        "CMD='vllm serve x'; $CMD",
        "CMD=(vllm); CMD+=(serve x); \"${CMD[@]}\"",
        "alias s='vllm serve'\nshopt -s expand_aliases\ns x",
        "run() { \"$@\"; }; run vllm serve x",
        "bash -c 'exec vllm serve x'",
        "eval \"vllm serve $MODEL\"",
        "for f in a b; do start_$f; done; start_a() { vllm serve x; }",
        "set -- vllm serve x; exec \"$@\"",
        "exec ./build/my-server --port 1",
    ],
)  # fmt: skip
def test_a_server_is_found(command):
    assert len(launches(command)) == 1


@pytest.mark.parametrize(
    "command",
    [
        "echo vllm serve x",
        "pkill -f sglang.launch_server",
        "pgrep -f 'vllm serve' || true",
        "command -v vllm serve",
        "timeout 5 pkill -f 'vllm serve'",
        "curl http://x/launch_server",
        "log() { echo \"$@\"; }; log vllm serve x",
        "cat <<EOF\nvllm serve x\nEOF",
        "# vllm serve x",
        "if [ \"$1\" = vllm ]; then :; fi",
        "python3 -c 'import vllm'",
        "exec > log 2>&1",
        "exit 0; vllm serve x",
        "serve() { vllm serve x; }",
        "pip install vllm",
    ],
)  # fmt: skip
def test_what_only_names_a_server_starts_none(command):
    assert launches(command) == ()


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("vllm serve x", "1"),
        ("env B=2 vllm serve x", "1"),
        ("A=2 vllm serve x", "2"),
        ("A=2 env A=3 vllm serve x", "3"),
        ("env -u A vllm serve x", None),
        ("env - B=1 vllm serve x", None),
        ("env -i A=4 vllm serve x", "4"),
        ("exec -c vllm serve x", None),
        ("docker run img vllm serve x", None),
        ("docker run -e A img vllm serve x", "1"),
        ("docker run -e A=5 --env=A=6 img vllm serve x", "6"),
        ("docker run --env-file f img vllm serve x", HOLE),
        ("sudo vllm serve x", None),
        ("sudo -E vllm serve x", "1"),
        ("sudo A=7 vllm serve x", "7"),
        ("srun -n1 vllm serve x", "1"),
        ("srun --export=ALL,B=1 vllm serve x", "1"),
        ("srun --export=B=1 vllm serve x", None),
        ("ssh host vllm serve x", HOLE),
        ("tmux new -d 'vllm serve x'", HOLE),
        ('env "$@" vllm serve x', HOLE),
        ('env A=3 "$@" vllm serve x', HOLE),
        ('env "$@" A=3 vllm serve x', "3"),
        ("env -vi B=1 vllm serve x", None),
        ("docker run -p1:2 -e A=5 img vllm serve x", "5"),
        ('docker run -e A=5 "${M[@]}" img vllm serve x', HOLE),
        ("bash -c 'A=8 vllm serve x'", "8"),
        ("env -i bash -c 'vllm serve x'", None),
        ("f() { local A=9; vllm serve x; }; f", "9"),
        ("(A=2); vllm serve x", "1"),
        ("A=2 | cat; vllm serve x", "1"),
        ("if false; then A=2; fi; vllm serve x", "1"),
        ("if x; then A=2; fi; vllm serve x", HOLE),
        ("for A in 1 2 3; do :; done; vllm serve x", "3"),
        ("while read A; do :; done; vllm serve x", HOLE),
        ("B=A; printf -v $B 4; vllm serve x", HOLE),
        ("unset A; vllm serve x", None),
        ("export -n A; vllm serve x", None),
        (". ./x.sh; vllm serve x", HOLE),
    ],
)
def test_what_the_server_sees(command, value):
    found = analyse(f"export A=1\n{command}\n".encode(), PARSER)
    (launch,) = found.launches
    variable = launch.variable("A")
    assert (None if variable.is_absent() else variable.value) == value


def test_a_caller_that_is_known_is_used():
    text = b'export A="${A:-1}" B="${B:-2}"\nexec vllm serve "$1"\n'
    caller = Caller({"A": "5"}, complete=True)
    (launch,) = analyse(text, PARSER, caller=caller).launches
    assert (launch.variable("A").value, launch.variable("B").value) == ("5", "2")


def test_a_launch_knows_its_line_and_its_words():
    (launch,) = launches("\n\nvllm serve x \\\n  --port 1\n")
    assert (launch.line, launch.text) == (3, "vllm serve x --port 1")
    assert launch.observations[0].line.payload is Payload.SERVER
