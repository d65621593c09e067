"""`fleetctl env HOST NAME`: a flag that nothing sets, and the one that was surely meant."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fleetctl.cli.app import app
from fleetctl.cli.boundary import run_guarded
from fleetctl.environment.explain import explain, flag_names
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.sources import ProcessEnvironment, Sources

SCRIPT = "/srv/dsv4/serve.sh"
SOURCES = Sources(
    "dsv4.service",
    {
        "/etc/systemd/system/dsv4.service": f"[Service]\nExecStart={SCRIPT}\n".encode(),
        SCRIPT: b"#!/bin/bash\nexport SGLANG_DSV4_TRITON_INDEXER=1\nexec python3 -m engine\n",
    },
    scripts=(SCRIPT,),
)


@pytest.fixture
def env(monkeypatch, capsys):
    """Runs `fleetctl env ...` against a host with SOURCES; returns code, stdout and stderr."""
    host = SimpleNamespace(name="h1", host=SimpleNamespace(unit="dsv4.service"))

    def told(_host, names=()):
        return explain(SOURCES, system_parser(), names or flag_names(SOURCES, system_parser()))

    def one(*_):
        return contextlib.nullcontext((host,))

    monkeypatch.setattr("fleetctl.cli.wiring.edges", one)
    monkeypatch.setattr("fleetctl.cli.wiring.the_inventory", lambda *_: None)
    monkeypatch.setattr("fleetctl.workflow.reach.reached", one)
    monkeypatch.setattr("fleetctl.workflow.flags.explain_flags", told)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fleetctl", "env", *arguments])
        code = run_guarded(app)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
@pytest.mark.parametrize("name", ["SGLANG_DSV4_TRITON_INDEX", "SGLANG_DSV4_TRITTON_INDEXER"])
def test_a_name_very_like_a_set_one_is_asked_about_on_stderr(env, name, more):
    code, out, err = env("h1", name, *more)
    assert code == 0
    assert f"note: h1: nothing sets {name}" in err
    assert "SGLANG_DSV4_TRITON_INDEXER" in err.replace(name, "", 1)
    if more:
        assert [flag["flag"] for flag in json.loads(out)[0]["flags"]] == [name]


@pytest.mark.parametrize("name", ["SGLANG_DSV4_TRITON_INDEXER", "OMP_NUM_THREADS"])
def test_a_set_name_and_one_like_no_other_are_not_asked_about(env, name):
    code, out, err = env("h1", name)
    assert (code, name in out, "nothing sets" in err) == (0, True, False)


@pytest.mark.parametrize("runs", [True, False])
def test_flags_of_a_unit_without_processes_are_told_to_be_what_files_say(env, monkeypatch, runs):
    process = ProcessEnvironment(7, ("/usr/bin/python3",), {"SGLANG_DSV4_TRITON_INDEXER": "1"})
    sources = replace(SOURCES, processes=(process,) if runs else ())
    monkeypatch.setattr(
        "fleetctl.workflow.flags.explain_flags",
        lambda _host, names=(): explain(sources, system_parser(), names),
    )

    code, _, err = env("h1", "SGLANG_DSV4_TRITON_INDEXER")

    assert code == 0
    assert ("no process of dsv4.service runs" in err) is not runs
