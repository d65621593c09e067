"""Caches of compiled kernels on a lab host: one for each arm, named, and gone afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from fleetctl.errors import ExitCode

pytestmark = pytest.mark.lab

SCRIPT = "/srv/dsv4/serve_dsv4_decode.sh"
UNIT = "sglang-dsv4-decode.service"
CACHE = "/srv/kernels"
FLAG = '[env]\nSGLANG_DSV4_GE_DIFF = "1"\n'
# what a compiler does: it keeps what it makes, and says what it finds
COMPILES = f"""
export TRITON_CACHE_DIR={CACHE}
echo "starts with $(find "$TRITON_CACHE_DIR" -name '*.so' -printf '%f,' 2>/dev/null)"
mkdir -p "$TRITON_CACHE_DIR/ab" && touch "$TRITON_CACHE_DIR/ab/diff-$SGLANG_DSV4_GE_DIFF.so"
"""


@pytest.fixture
def compiling(lab_hosts, person) -> Iterator[None]:
    """A service on lab-1 that has filled its cache."""
    argv = f"cp -a {SCRIPT} /root/script && sed -i '/^cd /r /dev/stdin' {SCRIPT} <<'EOT'\n"
    lab_hosts.run("lab-1", f"{argv}{COMPILES}EOT\nsystemctl restart {UNIT}")
    lab_hosts.wait_until_active("lab-1")
    yield
    lab_hosts.run("lab-1", f"mv /root/script {SCRIPT}; rm -rf {CACHE}; systemctl restart {UNIT}")
    lab_hosts.wait_until_active("lab-1")


def logs_of(person, arm: str) -> list[str]:
    """Return what the service said when it started for each trial of an arm."""
    files = sorted(person.folder.glob(f"runs/2*/trials/*-{arm}/lab-1.log"))
    return [
        line.partition("starts with ")[2]
        for file in files
        for line in file.read_text().splitlines()
        if "starts with" in line
    ]


def test_arms_have_caches_of_their_own_that_outlive_a_turn_and_go_with_the_run(
    person, compiling, untouched, lab_hosts
):
    spec = person.spec(FLAG, runs=2)

    planned = person.run("plan", spec)
    done = person.run("run", spec)

    (own,) = [
        line.split()[-1]
        for line in planned.stdout.splitlines()
        if "compiled kernels: TRITON_CACHE_DIR" in line and "fleetctl-" in line
    ]
    assert own.startswith(f"{CACHE}/fleetctl-")
    assert f"compiled kernels: TRITON_CACHE_DIR {CACHE}, as found" in planned.stdout
    assert done.returncode in (ExitCode.OK, ExitCode.INVALID), done.stderr
    assert logs_of(person, "treatment") == ["", "diff-1.so,"]
    assert all("diff-0.so" in line for line in logs_of(person, "control"))
    shown = [line for e in person.events() if e["kind"] == "deployed" for line in e["shown"]]
    assert any(f'TRITON_CACHE_DIR="{own}" in process' in line for line in shown)
    report = person.last_report()
    assert f"compiled kernels of treatment on lab-1: TRITON_CACHE_DIR {own}" in report["notes"]
    assert "TRITON_CACHE_DIR" not in json.dumps(report["differences"])
    assert lab_hosts.run("lab-1", f"ls {CACHE}") == "ab\n"
    untouched()


def test_arms_share_the_host_s_cache_when_the_spec_says_why(person, compiling, untouched):
    spec = person.spec(FLAG)
    spec.write_text(spec.read_text() + '[jit]\nshare = true\nreason = "no kernel differs"\n')

    done = person.run("run", spec)

    assert done.returncode in (ExitCode.OK, ExitCode.INVALID), done.stderr
    assert "diff-0.so" in logs_of(person, "treatment")[0]
    assert any("no kernel differs" in note for note in person.last_report()["notes"])
