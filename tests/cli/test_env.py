"""`fleetctl env edit` as people use it: diffs, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.cli.boundary import run_guarded
from fleetctl.cli.env import env

SCRIPT = "#!/bin/bash\nexport A=1\nexec vllm serve x\n"


@pytest.fixture
def fleetctl(monkeypatch, capsys):
    """Run `fleetctl env ...` in this process; returns exit code, stdout and stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fleetctl env", *map(str, arguments)])
        code = run_guarded(env)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "serve.sh"
    path.write_text(SCRIPT)
    return path


def test_the_change_is_shown_as_a_diff_and_made(fleetctl, script):
    code, out, err = fleetctl("edit", script, "A=0", "B=x y", "--unset", "C")
    assert code == 0
    assert "-export A=1\n+export A=0\n" in out
    assert "edited" in err
    assert script.read_text() == (
        "#!/bin/bash\nexport A=0\nexport B='x y'\nunset C\nexec vllm serve x\n"
    )


def test_a_dry_run_writes_nothing(fleetctl, script):
    code, out, err = fleetctl("edit", script, "A=0", "--dry-run")
    assert (code, "+export A=0" in out, "would edit" in err) == (0, True, True)
    assert script.read_text() == SCRIPT


def test_nothing_is_written_where_all_holds(fleetctl, script):
    before = script.stat().st_mtime_ns
    code, out, err = fleetctl("edit", script, "A=1")
    assert (code, out, "nothing to do" in err) == (0, "", True)
    assert script.stat().st_mtime_ns == before


def test_json_tells_the_files_the_means_and_the_diff(fleetctl, script):
    code, out, _ = fleetctl("edit", script, "A=0", "--json")
    answer = json.loads(out)
    assert (code, answer["changed"]) == (0, True)
    (edit,) = answer["files"]
    assert (edit["path"], edit["why"]) == (str(script), "A edited in place (line 2)")
    assert "+export A=0" in edit["diff"]


def test_edits_may_come_from_a_file(fleetctl, script, tmp_path):
    edits = tmp_path / "edits.json"
    edits.write_text('{"A": "0", "B": null}')
    assert fleetctl("edit", script, "--edits", edits)[0] == 0
    assert "export A=0\nunset B\n" in script.read_text()


def test_a_refusal_ends_with_three_and_says_what_why_and_next(fleetctl, tmp_path):
    path = tmp_path / "x.sh"
    path.write_text("A=1 vllm serve x &\nA=2 vllm serve y &\nwait\n")
    code, out, err = fleetctl("edit", path, "A=0")
    assert (code, out) == (3, "")
    assert "why:" in err
    assert "hint:" in err
    code, out, err = fleetctl("edit", path, "A=0", "--json")
    error = json.loads(out)["error"]
    assert (code, error["kind"], error["code"], error["line"]) == (3, "EditRefused", "ambiguous", 2)
    assert error["why"]
    assert error["next_step"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("{script}",),
        ("{script}", "A"),
        ("{script}", "A=1", "--unset", "A"),
        ("{script}", "--edits", "/none.json"),
        ("/none.sh", "A=1"),
        ("A=1", "--unit", "x.service", "--scope", "other"),
    ],
)
def test_what_can_not_be_understood_is_refused(arguments, fleetctl, script):
    code, _, err = fleetctl("edit", *(a.replace("{script}", str(script)) for a in arguments))
    assert code == 3
    assert "hint:" in err
    assert script.read_text() == SCRIPT


@pytest.mark.parametrize("text", ["[]", '{"A": 1}', "{"])
def test_a_file_of_edits_is_a_map_of_strings(text, fleetctl, script, tmp_path):
    edits = tmp_path / "edits.json"
    edits.write_text(text)
    assert fleetctl("edit", script, "--edits", edits)[0] == 3


def test_a_unit_is_edited_below_a_root(fleetctl, tmp_path):
    at = tmp_path / "etc/systemd/system/nova.service"
    at.parent.mkdir(parents=True)
    at.write_text("[Service]\nExecStart=/opt/bin/server\n")
    code, out, _ = fleetctl("edit", "A=1", "--root", tmp_path, "--unit", "nova.service")
    assert code == 0
    assert '+Environment="A=1"' in out
    assert "A=1" in (tmp_path / "etc/systemd/system/nova.service.d/90-fleetctl.conf").read_text()


def test_a_flag_in_place_of_the_file_is_called_so(fleetctl):
    code, _, err = fleetctl("edit", "A=1")

    assert code == 3
    assert "`A=1` is none" in err
    assert "a file of this machine" in err


@pytest.mark.parametrize(
    ("arguments", "is_hinted"),
    [
        (("SGLANG_DSV4_GE_DIF=0",), True),
        (("--unset", "SGLANG_DSV4_GE_DIF"), True),
        (("SGLANG_DSV4_GE_DIFF=0",), False),
        (("SGLANG_DSV4_IDXK_CANARY=1",), False),
        (("B=1",), False),
    ],
)
def test_a_name_that_is_nearly_one_of_the_file_is_told_beside_the_edit(
    fleetctl, tmp_path, arguments, is_hinted
):
    path = tmp_path / "serve.sh"
    path.write_text("export SGLANG_DSV4_GE_DIFF=1\nexport A=1\nexec vllm serve x\n")

    code, _, err = fleetctl("edit", path, *arguments, "--dry-run")

    assert code == 0
    assert ("did you mean `SGLANG_DSV4_GE_DIFF`?" in err) == is_hinted


def test_a_users_unit_is_edited_in_the_users_home(fleetctl, tmp_path):
    at = tmp_path / "home/svc/.config/systemd/user/nova.service"
    at.parent.mkdir(parents=True)
    at.write_text("[Service]\nExecStart=/opt/bin/server\n")
    options = ("--root", tmp_path, "--unit", "nova.service", "--scope", "user")
    assert fleetctl("edit", "A=1", *options)[0] == 0
    assert (at.parent / "nova.service.d/90-fleetctl.conf").exists()


def test_an_env_file_is_edited_as_one(fleetctl, tmp_path):
    path = tmp_path / "nova.env"
    path.write_text("A=1 # note\nB=2\n")
    assert fleetctl("edit", path, "A=it's")[0] == 0
    assert path.read_text() == 'A="it\'s"\nB=2\n'


def test_a_script_of_one_line_is_no_env_file(fleetctl, tmp_path):
    path = tmp_path / "serve"
    path.write_text("\nB=2 A=1 vllm serve x\n")
    assert fleetctl("edit", path, "A=")[0] == 0
    assert path.read_text() == "\nB=2 A='' vllm serve x\n"


def test_a_unit_file_is_not_edited_as_a_file(fleetctl, tmp_path):
    path = tmp_path / "nova.service"
    path.write_text("[Service]\n")
    code, _, err = fleetctl("edit", path, "A=1")
    assert (code, "--unit nova.service" in err) == (3, True)


@pytest.mark.parametrize("arguments", [("/nonexistent/serve.sh", "A=1"), ("x", "--edits", "/no")])
def test_a_file_that_is_not_there_is_told_in_words(fleetctl, arguments):
    code, _, err = fleetctl("edit", *arguments)

    assert code == 3
    assert "No such file or directory" in err
    assert "Errno" not in err
