"""A server written with another framework is driven through the same path as our own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.errors import ExitCode

pytestmark = pytest.mark.lab

UNIT = "sglang-dsv4-decode.service"
SCRIPT = "/srv/dsv4/serve_dsv4_decode.sh"
SERVER = Path(__file__).with_name("foreign_chat.py")
PARSER_OFF = '[env]\nFOREIGN_TOOL_PARSER = "off"\n'
TRIALS = """
[workload]
kind = "toolcall"
sessions = 4
rounds = 3
context_tokens = 40
max_tokens = 200
[trials]
runs = 1
[ready]
soak = "500ms"
concurrent = 3
port = { deadline = "20s", poll = "1s" }
health = { deadline = "10s", poll = "1s" }
completion = { deadline = "10s", poll = "1s" }
"""


@pytest.fixture
def foreign(person, lab_hosts) -> Iterator[None]:
    """The other server in the place of ours on lab-1, and an inventory that says so."""
    argv = lab_hosts.lab.ssh_argv("lab-1", ["cat > /srv/dsv4/foreign_chat.py"])
    subprocess.run(argv, input=SERVER.read_bytes(), check=True, timeout=60)
    lab_hosts.run(
        "lab-1",
        f"cp -a {SCRIPT} /root/script && sed -i '/^exec/,$d' {SCRIPT} && "
        f"""echo 'exec "$PY" "$TREE/foreign_chat.py" "$PORT"' >> {SCRIPT} && """
        f"systemctl restart {UNIT}",
    )
    changed = {"model =": 'model = "other-model"', "health_path =": 'health_path = "/ping"'}
    lines = person.inventory.read_text().splitlines()
    person.inventory = person.folder / "inventory.toml"
    person.inventory.write_text(
        "\n".join(
            next((new for old, new in changed.items() if line.startswith(old)), line)
            for line in lines
        )
    )
    yield
    lab_hosts.run(
        "lab-1",
        f"mv /root/script {SCRIPT}; rm /srv/dsv4/foreign_chat.py; systemctl restart {UNIT}",
    )
    lab_hosts.wait_until_active("lab-1")


def foreign_spec(person, body: str) -> Path:
    path = person.spec(body)
    path.write_text(path.read_text().partition("[workload]")[0] + TRIALS)
    return path


def counts_of(person, arm: str) -> dict[str, int]:
    """Return the classes of the only trial of an arm, without those that nothing came to."""
    (facts,) = person.folder.glob(f"runs/2*/trials/*-{arm}/facts.json")
    counts = json.loads(facts.read_text())["counts"]
    return {name: count for name, count in counts.items() if count}


def test_flags_readiness_and_classes_hold_for_a_server_that_is_not_ours(person, foreign, untouched):
    done = person.run("run", foreign_spec(person, PARSER_OFF))

    assert done.returncode in (ExitCode.OK, ExitCode.INVALID), done.stderr
    shown = [e["shown"] for e in person.events() if e["kind"] == "deployed"]
    assert any('FOREIGN_TOOL_PARSER="off" in process' in line for lines in shown for line in lines)
    assert counts_of(person, "control") == {"done": 4}
    assert counts_of(person, "treatment") == {"leak": 4}
    untouched()


def test_code_of_a_server_that_is_not_ours_is_found_beside_its_script(person, foreign, untouched):
    source = person.payload("mine.py", SERVER.read_text().replace("All is well.", "All is mine."))
    patch = f'[[patch]]\nsource = "{source}"\nmodule = "foreign_chat"\n'

    done = person.run("run", foreign_spec(person, patch + 'marker = "[foreign] parser=on"\n'))

    assert done.returncode in (ExitCode.OK, ExitCode.INVALID), done.stderr
    shown = [line for e in person.events() if e["kind"] == "deployed" for line in e["shown"]]
    assert any("foreign_chat is /srv/dsv4/foreign_chat.py (sha256" in line for line in shown)
    assert any('marker "[foreign] parser=on" was logged' in line for line in shown)
    untouched()


def test_a_tool_call_that_comes_as_text_is_not_ready_where_the_spec_asks_for_one(
    person, foreign, untouched
):
    spec = foreign_spec(person, PARSER_OFF)
    spec.write_text(spec.read_text() + "tool_call = true\n")

    done = person.run("run", spec)

    assert done.returncode == ExitCode.FAILED_RESTORED, done.stderr
    assert "tool call is unhealthy" in done.stderr
    assert "last layer passed: completion" in done.stderr
    untouched()
