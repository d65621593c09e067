"""`transformers serve`, another framework's server, is driven through the same path as ours.

Its model is a tiny Llama made on the spot, whose weights are constructed so that it always
answers one sentence: readiness asks it for a real completion, and gets one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetctl.errors import ExitCode
from tests.end_to_end.fleets import Person

pytestmark = [pytest.mark.lab, pytest.mark.soak]

VERSION = "5.24.0"
# lab hosts see this machine's /var/tmp, but not its /tmp and homes
CACHE = Path(f"/var/tmp/fleetctl-transformers-{VERSION}")
PYTHON = CACHE / "venv/bin/python"
MODEL = CACHE / "model"
SCRIPT = "/srv/dsv4/serve_dsv4_decode.sh"
UNIT = "sglang-dsv4-decode.service"
SERVE = f"""#!/bin/bash
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
export TRANSFORMERS_VERBOSITY=info
exec {CACHE}/venv/bin/transformers serve {MODEL} --device cpu --host 127.0.0.1 --port PORT
"""
PATCHED = "transformers.cli.serving.utils"
EVERY_BYTE = rf"""
cd {CACHE}/venv/lib && ls -d /tmp/fleetctl-* 2>/dev/null
find {SCRIPT} python3*/site-packages/transformers/cli/serving -name __pycache__ -prune -o \
  -type f -printf '%p %m %u %g %T@ ' -exec sha256sum {{}} \; | sort
"""
READY = """
[ready]
soak = "500ms"
concurrent = 2
port = { deadline = "3m", poll = "1s" }
health = { deadline = "1m", poll = "1s" }
completion = { deadline = "1m", poll = "1s" }
"""


def pip(*words: str) -> None:
    argv = [str(PYTHON), "-m", "pip", "-q", "--no-input", *words]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False
    )
    if done.returncode:
        shutil.rmtree(CACHE, ignore_errors=True)
        pytest.skip(f"pip can't install transformers {VERSION} here: {done.stderr.strip()[-200:]}")


@pytest.fixture(scope="module")
def framework() -> None:
    """A virtual environment with the framework beside this one's torch; made once per machine."""
    if MODEL.exists():
        return
    pytest.importorskip("torch")
    shutil.rmtree(CACHE, ignore_errors=True)
    made = [sys.executable, "-m", "venv", "--without-pip", str(CACHE / "venv")]
    subprocess.run(made, check=True, timeout=120)
    (packages,) = (CACHE / "venv/lib").glob("python3*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip("install", "--only-binary=:all:", f"transformers[serving]=={VERSION}")
    program = Path(__file__).with_name("tiny_llama.py")
    subprocess.run([PYTHON, program, MODEL], check=True, timeout=300, capture_output=True)


@pytest.fixture(scope="module")
def host(framework, labs, permitted_kinds) -> Iterator[object]:
    """A lab host of its own, on which the framework serves."""
    running = labs.up(1)
    port = re.search(r'service_url = ".*:(\d+)"', running.inventory.read_text())[1]
    argv = running.lab.ssh_argv("lab-1", [f"cat > {SCRIPT} && systemctl restart {UNIT}"])
    subprocess.run(argv, input=SERVE.replace("PORT", port).encode(), check=True, timeout=60)
    running.wait_until_active("lab-1")
    yield running
    labs.down(running.lab.directory.parent)


@pytest.fixture
def person(host, tmp_path) -> Person:
    """Somebody whose inventory declares that server: interpreter, tree, model, health."""
    changed = {
        "python =": f'python = "{PYTHON}"',
        "tree =": f'tree = "{CACHE}/venv"',
        "model =": f'model = "{MODEL}"',
        "health_path =": 'health_path = "/health"',
    }
    lines = host.inventory.read_text().splitlines()
    path = tmp_path / "inventory.toml"
    path.write_text(
        "\n".join(
            next((new for old, new in changed.items() if line.startswith(old)), line)
            for line in lines
        )
    )
    return Person(tmp_path, path)


def test_flag_module_caches_and_readiness_of_another_framework(person, host):
    """One run: a flag that it reads, and a module of its own serving code."""
    before = host.run("lab-1", EVERY_BYTE)
    module = next(CACHE.glob("venv/lib/python3*/site-packages/transformers/cli/serving/utils.py"))
    marker = "[variant] serving=mine"
    source = person.payload("utils.py", module.read_text() + f'\nprint("{marker}", flush=True)\n')
    spec = person.spec(
        f'[[patch]]\nsource = "{source}"\nmodule = "{PATCHED}"\nmarker = "{marker}"\n'
        '[env]\nTRANSFORMERS_VERBOSITY = "error"\n'
    )
    text = spec.read_text().replace('target = "lab-1"', 'target = "lab-1"\nforced = ["confounded"]')
    spec.write_text(text.partition("[ready]")[0] + READY)

    done = person.run("run", spec, deadline_s=500.0)

    assert done.returncode in (ExitCode.OK, ExitCode.INVALID), done.stderr
    shown = {e["arm"]: "\n".join(e["shown"]) for e in person.events() if e["kind"] == "deployed"}
    assert 'TRANSFORMERS_VERBOSITY="error" in process' in shown["treatment"]
    assert f"{PATCHED} is {module} (sha256" in shown["treatment"]
    assert f"marker {marker!r} was logged by process" in shown["treatment"]
    assert f"{PATCHED} is {module} (sha256" in shown["control"]
    assert "reads TRANSFORMERS_VERBOSITY" not in done.stderr
    notes = person.last_report()["notes"]
    assert any("compiled kernels of treatment on lab-1: TORCHINDUCTOR" in note for note in notes)
    assert host.run("lab-1", EVERY_BYTE) == before
