"""Patches of the real sglang wheel on a lab host: found, shown, proven, and put back.

Most of its packages have no `__init__.py`, one of its files ends its lines with CRLF, and nothing
of it can be imported without a GPU's libraries: what a person's own patches meet, too.
"""

from __future__ import annotations

import difflib
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.errors import ExitCode

pytestmark = [pytest.mark.lab, pytest.mark.slow]

VERSION = "0.5.23"
UNIT = "sglang-dsv4-decode.service"
SCRIPT = "/srv/dsv4/serve_dsv4_decode.sh"
DSV4 = "sglang/srt/layers/attention/dsv4"
INDEXER = f"{DSV4}/indexer.py"
RUNNER = "sglang/srt/model_executor/runner/decode_cuda_graph_runner.py"
CRLF = "sglang/srt/hardware_backend/npu/batch_invariant_ops/npu_batch_invariant_ops.py"
ENVIRON = "sglang/srt/environ.py"
EVERY_BYTE = r"""
cd /srv/dsv4 && find . -name __pycache__ -prune -o -type f -printf '%p %m %u %g %T@\n' | sort
find . -name __pycache__ -prune -o ! -type f -printf '%p %y %m %u %g %l\n' | sort
find . -name __pycache__ -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
"""

# what can be imported on a CPU is imported by the service itself: sglang's own __init__ can't
SLOT = """
import importlib, importlib.machinery, sys, types
found = importlib.machinery.PathFinder.find_spec("sglang")
sys.modules["sglang"] = types.ModuleType("sglang")
sys.modules["sglang"].__path__ = list(found.submodule_search_locations)
added = importlib.import_module("sglang.srt.layers.attention.dsv4.added")
environ = importlib.import_module("sglang.srt.environ")
NAME = added.NAME + "+" + environ.PATCHED
"""
BY_IMPORT = """
[[patch]]
source = "payload/slot.py"
module = "serve.dsv4.indexer"
marker = "[variant] indexer=tree+diff"
"""
THREE_KINDS = """
[[patch]]
source = "payload/two_files.diff"
module = "sglang"
[[patch]]
source = "payload/dsv4/"
module = "sglang.srt.layers.attention.dsv4"
[[patch]]
source = "payload/compressor.py"
module = "sglang.srt.layers.attention.dsv4.compressor"
"""
A_DIFF = '[[patch]]\nsource = "payload/mine.diff"\nmodule = "sglang.srt.layers.attention.dsv4"\n'


@pytest.fixture(scope="module")
def wheel() -> dict[str, bytes]:
    """The Python files of the wheel, by name; fetched once per machine."""
    cache = Path(tempfile.gettempdir()) / f"fleetctl-sglang-{VERSION}"
    if not list(cache.glob("sglang-*.whl")):
        argv = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "--only-binary=:all:"]
        done = subprocess.run(
            [*argv, "-d", cache, f"sglang=={VERSION}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"pip can't fetch sglang {VERSION} here: {done.stderr.strip()[-200:]}")
    (path,) = cache.glob("sglang-*.whl")
    with zipfile.ZipFile(path) as packed:
        names = [name for name in packed.namelist() if name.startswith("sglang/")]
        return {name: packed.read(name) for name in names if name.endswith(".py")}


@pytest.fixture(scope="module")
def unpacked(wheel, lab_hosts) -> Iterator[None]:
    """The wheel in the tree of lab-1, where the service's interpreter finds it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in wheel.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    argv = lab_hosts.lab.ssh_argv("lab-1", ["tar -C /srv/dsv4/python -xf -"])
    subprocess.run(argv, input=packed.getvalue(), check=True, timeout=120)
    yield
    lab_hosts.run("lab-1", "rm -rf /srv/dsv4/python/sglang; touch /srv/dsv4/python")


@pytest.fixture
def as_found(unpacked, lab_hosts, person) -> Callable[[], None]:
    """Call it to see that the tree of lab-1 is, byte for byte, what it was."""
    before = lab_hosts.run("lab-1", EVERY_BYTE)

    def check() -> None:
        after = lab_hosts.run("lab-1", EVERY_BYTE)
        assert set(before.splitlines()) ^ set(after.splitlines()) == set()

    return check


def diff_of(wheel: dict[str, bytes], names: tuple[str, ...], *, below: str = "") -> bytes:
    """Return a unified diff that adds a line in the middle and one at the end of each file."""
    lines: list[bytes] = []
    for name in names:
        before = wheel[name].splitlines(keepends=True)
        end = b"\r\n" if before[0].endswith(b"\r\n") else b"\n"
        first = next(i for i, line in enumerate(before) if line.startswith(b"import ")) + 1
        after = [*before[:first], b"# changed" + end, *before[first:], b'PATCHED = "diff"' + end]
        spelt = f"{below}{name}".encode()
        made = difflib.diff_bytes(difflib.unified_diff, before, after, b"a/" + spelt, b"b/" + spelt)
        lines += [line if line.endswith(b"\n") else line + b"\n" for line in made]
    return b"".join(lines)


def write(person, name: str, content: bytes) -> None:
    path = person.folder / "payload" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def spec_of(person, body: str) -> Path:
    path = person.spec(body)
    text = path.read_text().replace('"lab-1"\n', '"lab-1"\nforced = ["confounded"]\n', 1)
    path.write_text(text)
    return path


def shown_by(person, arm: str) -> str:
    """Return what was proven about the only deployment of an arm."""
    (event,) = [e for e in person.events() if e["kind"] == "deployed" and e["arm"] == arm]
    return "\n".join(event["shown"])


@pytest.fixture
def three_kinds(person, wheel) -> Path:
    """A spec with a diff of four files, a tree and a file, and a module that imports them."""
    write(person, "two_files.diff", diff_of(wheel, (INDEXER, RUNNER, CRLF, ENVIRON)))
    write(person, "dsv4/added.py", b'NAME = "tree"\n')
    write(person, "dsv4/metadata.py", wheel[f"{DSV4}/metadata.py"] + b"# mine\n")
    write(person, "compressor.py", wheel[f"{DSV4}/compressor.py"] + b"# mine\n")
    write(person, "slot.py", SLOT.encode())
    return spec_of(person, THREE_KINDS + BY_IMPORT)


def test_the_plan_shows_every_change_of_the_wheel_and_makes_none(person, as_found, three_kinds):
    done = person.run("plan", three_kinds)

    assert done.returncode == ExitCode.OK, done.stderr
    for path in (INDEXER, RUNNER, CRLF, f"{DSV4}/added.py", f"{DSV4}/compressor.py"):
        assert f"/srv/dsv4/python/{path}" in done.stdout
    assert '+PATCHED = "diff"' in done.stdout
    as_found()


def test_diff_tree_and_file_are_proven_in_the_live_process_and_undone(
    person, as_found, three_kinds
):
    done = person.run("run", three_kinds)

    assert done.returncode == ExitCode.INVALID, done.stderr  # the control never showed a fault
    shown = shown_by(person, "treatment")
    for name in (INDEXER, RUNNER, CRLF, f"{DSV4}/added.py", f"{DSV4}/metadata.py"):
        module = name.removesuffix(".py").replace("/", ".")
        assert f"{module} is /srv/dsv4/python/{name} (sha256" in shown
    assert 'marker "[variant] indexer=tree+diff" was logged' in shown
    as_found()


def test_a_diff_in_the_words_of_the_repository_finds_the_installed_package(person, as_found, wheel):
    """Sglang's repository keeps the package in `python/sglang`."""
    write(person, "mine.diff", diff_of(wheel, (INDEXER,), below="python/"))

    done = person.run("plan", person.spec(A_DIFF))

    assert done.returncode == ExitCode.OK, done.stderr
    assert f"/srv/dsv4/python/{INDEXER}" in done.stdout
    assert "/python/python/" not in done.stdout


def test_a_diff_of_another_version_shows_the_conflict_and_touches_nothing(person, as_found, wheel):
    diff = diff_of(wheel, (INDEXER, RUNNER)).replace(b"\n import ", b"\n import other_", 1)
    write(person, "mine.diff", diff)

    done = person.run("run", person.spec(A_DIFF))

    assert done.returncode == ExitCode.REFUSED
    assert "<<<<<<< the host's file" in done.stderr
    assert f"does not fit {INDEXER}" in done.stderr
    as_found()


def test_a_flag_that_the_wheel_reads_is_no_typo_and_its_typo_is(person, as_found):
    flags = (
        '[env]\nSGLANG_DSV4_FP4_LOGITS_BUDGET_MB = "1"\nSGLANG_DSV4_FP4_LOGITS_BUDGET_GB = "1"\n'
    )

    done = person.run("plan", spec_of(person, flags))

    assert done.returncode == ExitCode.OK, done.stderr
    assert "reads SGLANG_DSV4_FP4_LOGITS_BUDGET_GB" in done.stdout
    assert "reads SGLANG_DSV4_FP4_LOGITS_BUDGET_MB" not in done.stdout


@pytest.fixture
def in_site_packages(unpacked, lab_hosts, person) -> Iterator[str]:
    """The wheel in a virtual environment inside the tree, which serves: its site-packages."""
    lab_hosts.run(
        "lab-1",
        f"cp -a {SCRIPT} /root/script && cd /srv/dsv4 && "
        f"$(sed -n 's/^PY=//p' {SCRIPT}) -m venv --without-pip venv && "
        "mv python/sglang venv/lib/python3*/site-packages/ && "
        f"sed -i s,^PY=.*,PY=/srv/dsv4/venv/bin/python, {SCRIPT} && systemctl restart {UNIT}",
    )
    lines = person.inventory.read_text().splitlines()
    person.inventory = person.folder / "inventory.toml"
    person.inventory.write_text(
        "\n".join(
            'python = "/srv/dsv4/venv/bin/python"' if line.startswith("python =") else line
            for line in lines
        )
    )
    lab_hosts.wait_until_active("lab-1")
    yield lab_hosts.run("lab-1", "echo /srv/dsv4/venv/lib/python3*/site-packages").strip()
    lab_hosts.run(
        "lab-1",
        "cd /srv/dsv4 && mv venv/lib/python3*/site-packages/sglang python/ && rm -rf venv && "
        f"mv /root/script {SCRIPT} && systemctl restart {UNIT}",
    )
    lab_hosts.wait_until_active("lab-1")


def test_site_packages_of_a_virtual_environment_in_the_tree_are_patched_alike(
    person, in_site_packages, as_found, wheel
):
    write(person, "mine.diff", diff_of(wheel, (INDEXER, RUNNER)))

    done = person.run("run", person.spec(A_DIFF))

    assert done.returncode == ExitCode.INVALID, done.stderr
    shown = shown_by(person, "treatment")
    assert f"{in_site_packages}/{INDEXER} (sha256" in shown
    assert f"{in_site_packages}/{RUNNER} (sha256" in shown
    as_found()
