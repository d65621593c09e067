"""`fleetctl bisect` and `minimize` on a real host: what they find, survive, and leave behind."""

import contextlib
import difflib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleetctl.errors import ExitCode
from fleetctl.lab import Kind
from tests.end_to_end.fleets import Person

pytestmark = pytest.mark.lab

SESSIONS = 160
# the stand-in answers well; this slot lets as many answers leak as the indexer says, without dice
LEAKY = """
NAME = "leaky"
import importlib, itertools, os
import __main__
indexer = importlib.import_module("serve.dsv4.indexer")
gate = os.environ.get("SGLANG_GATE", "open") == getattr(indexer, "GATE", "open")
rate = getattr(indexer, "FAULT_RATE", 0.01) if gate else 0.01
answer, sessions = __main__.Answers.answer, itertools.count(1)
def leaking(self, status, document):
    if self.headers.get("X-Session"):
        number = next(sessions)
        if int(number * rate) > int((number - 1) * rate):
            document["choices"][0]["message"]["content"] = "<tool_call>"
    answer(self, status, document)
__main__.Answers.answer = leaking
"""
TRIAL = f"""
import http.client, json, os, pathlib, urllib.parse
url = urllib.parse.urlsplit(os.environ["FLEETCTL_URL"])
server, bad = http.client.HTTPConnection(url.hostname, url.port, timeout=30), 0
for _ in range({SESSIONS}):
    server.request("POST", "/v1/chat/completions", "{{}}", {{"X-Session": "1"}})
    bad += b"<tool_call>" in server.getresponse().read()
pathlib.Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps(
    {{"sessions": {SESSIONS}, "counts": {{"leak": bad, "done": {SESSIONS} - bad}}}}))
"""
BASE = '[[base.patch]]\nsource = "payload/leaky.py"\nmodule = "serve.dsv4.runner"\n'
CHANGE = (
    '[[change]]\nname = "{0}"\n'
    'patch = [{{ source = "payload/{0}.diff", module = "serve.dsv4.indexer" }}]\n'
)
FOUND = 'NAME = "transient"\n'
SLOT = "python/serve/dsv4/indexer.py"


@pytest.fixture(scope="module")
def host(labs, permitted_kinds):
    """A lab of one host made of processes, whose files lie on this machine."""
    return labs.up(1, kind=Kind.PROCESSES)


@pytest.fixture
def tree(host) -> Path:
    (line,) = [x for x in host.inventory.read_text().splitlines() if x.startswith("tree = ")]
    return Path(json.loads(line.removeprefix("tree = ")))


@pytest.fixture
def person(host, tmp_path) -> Person:
    (tmp_path / "trial.py").write_text(TRIAL)
    (tmp_path / "payload").mkdir()
    (tmp_path / "payload/leaky.py").write_text(LEAKY)
    host.wait_until_active("lab-1")
    return Person(tmp_path, host.inventory)


def write(person: Person, body: str) -> Path:
    path = person.folder / "search.toml"
    path.write_text(
        '[experiment]\nname = "which"\ntarget = "lab-1"\n'
        f"{body}"
        f'[workload]\nkind = "command"\nsessions = {SESSIONS}\n'
        f'argv = ["{sys.executable}", "{person.folder / "trial.py"}"]\n'
        '[ready]\nsoak = "200ms"\n'
    )
    return path


def series(person: Person, changes: dict[str, str]) -> str:
    """Write a diff for each change, resting on those before it; return the tables."""
    before = FOUND
    for name, lines in changes.items():
        after = before + lines
        diff = difflib.unified_diff(
            before.splitlines(True), after.splitlines(True),
            "a/serve/dsv4/indexer.py", "b/serve/dsv4/indexer.py",
        )  # fmt: skip
        (person.folder / f"payload/{name}.diff").write_text("".join(diff))
        before = after
    return "".join(CHANGE.format(name) for name in changes)


def everything(tree: Path) -> dict[str, tuple[str, int, int]]:
    return {
        str(path.relative_to(tree)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in sorted(tree.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def log(person: Person) -> list[dict[str, object]]:
    paths = sorted((person.folder / "runs").glob("2*/search.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def wait_for_answers(person: Person, process: subprocess.Popen, count: int) -> None:
    while process.poll() is None:
        with contextlib.suppress(ValueError):
            if sum(line["kind"] == "measured" for line in log(person)) >= count:
                return
        time.sleep(0.1)
    raise AssertionError(process.communicate()[1])


@pytest.mark.soak
def test_bisect_finds_the_planted_one_of_16_patches_also_when_it_is_killed_on_the_way(
    person, host, tree
):
    before = everything(tree)
    changes = {f"change-{k:02d}": f"CHANGE_{k} = True\n" for k in range(1, 17)}
    changes["change-11"] += "FAULT_RATE = 0.15\n"
    spec = write(person, f"[bisect]\nconfirm_runs = 2\n{BASE}{series(person, changes)}")
    process = person.start("bisect", spec)
    wait_for_answers(person, process, 3)
    process.kill()
    process.communicate()

    done = person.run("resume", "latest", "--json", deadline_s=900)

    assert done.returncode == ExitCode.OK, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert found["culprit"] == ["change-11"]
    assert (found["verdict"], found["confirmation"]) == ("found", "reduced")
    numbers = [line["number"] for line in log(person) if line["kind"] == "measured"]
    assert numbers == list(range(found["runs"]["search"] + found["runs"]["confirmation"]))
    assert sum(point["runs"] for point in found["points"]) == len(numbers)
    assert found["points"][0]["changes"] == 0
    assert everything(tree) == before
    assert host.run("lab-1", "systemctl is-active sglang-dsv4-decode").strip() == "active"
    assert person.run("bisect", spec, "--resume").returncode == ExitCode.REFUSED  # it is finished


@pytest.mark.soak
def test_minimize_finds_a_patch_and_a_flag_that_only_break_together(person, tree):
    before = everything(tree)
    fault = series(person, {"fault": 'GATE = "shut"\nFAULT_RATE = 0.6\n'})
    decoy = '[[change]]\nname = "decoy"\nenv = { SGLANG_DECOY = "1" }\n'
    gate = '[[change]]\nname = "gate"\nenv = { SGLANG_GATE = "shut" }\n'
    spec = write(person, f"[minimize]\nend_runs = 2\ntests = 10\n{BASE}{fault}{gate}{decoy}")

    planned = person.run("plan", spec)
    done = person.run("minimize", spec, "--json", deadline_s=900)

    assert "all changes on lab-1" in planned.stdout, planned.stderr
    assert done.returncode == ExitCode.OK, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert found["minimal"] == ["fault", "gate"]
    assert found["interactions"] == [["fault", "gate"]]
    assert (found["direction"], found["rest_keeps"]) == (1, "no")
    assert everything(tree) == before


@pytest.fixture
def git(tree):
    """A git tree in the host's serving tree, with four commits; it is gone afterwards."""
    slots = {slot: tree / f"python/serve/dsv4/{slot}.py" for slot in ("indexer", "runner")}
    kept = {path: path.read_bytes() for path in slots.values()}

    def run(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", tree, "-c", "user.name=t", "-c", "user.email=t@t", *words],
            check=True, capture_output=True, text=True,
            env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"},
        )  # fmt: skip
        return done.stdout.strip()

    (tree / ".gitignore").write_text("__pycache__\nmodels\n")
    run("init", "-q", "-b", "main")
    slots["runner"].write_text(LEAKY)
    (tree / "notes").write_text("first\n")
    texts = [
        FOUND,
        f"{FOUND}A = 1\n",
        f"{FOUND}A = 1\nFAULT_RATE = 0.6\n",
        f"{FOUND}FAULT_RATE = 0.6\n",
    ]
    for number, text in enumerate(texts):
        slots["indexer"].write_text(text)
        if number == 1:
            (tree / "notes").unlink()
            (tree / "extra").mkdir()
            (tree / "extra/blob").write_bytes(bytes(range(256)))
        run("add", "-A")
        run("commit", "-q", "-m", f"commit {number}")
    yield run
    shutil.rmtree(tree / ".git")
    shutil.rmtree(tree / "extra")
    (tree / ".gitignore").unlink()
    for path, content in kept.items():
        path.write_bytes(content)


@pytest.mark.soak
def test_bisect_over_commits_deploys_files_and_touches_neither_index_nor_working_tree(
    person, tree, git
):
    body = (
        '[bisect]\nconfirm_runs = 0\ngood_rate = "1%"\nbad_rate = "60%"\n'
        '[commits]\ngood = "HEAD~3"\nbad = "HEAD"\npackage = "serve"\n'
    )
    before = everything(tree)
    head = git("rev-parse", "HEAD")

    done = person.run("bisect", write(person, body), "--json", deadline_s=900)

    assert done.returncode == ExitCode.OK, (done.stdout, done.stderr)
    found = json.loads(done.stdout)
    assert [label.split(" ", 1)[1] for label in found["culprit"]] == ["commit 2"]
    assert everything(tree) == before
    assert git("rev-parse", "HEAD") == head
    assert git("status", "--porcelain") == ""
    shown = [e["shown"] for e in person.events() if e["kind"] == "deployed"]
    assert any("serve.dsv4.indexer" in line for lines in shown for line in lines)


def test_a_dirty_git_tree_is_refused_before_anything_is_changed(person, tree, git):
    (tree / SLOT).write_text("mine\n")
    before = everything(tree)

    done = person.run(
        "bisect", write(person, '[commits]\ngood = "HEAD~3"\nbad = "HEAD"\n'), deadline_s=120
    )

    assert done.returncode == ExitCode.REFUSED
    assert "changes that no commit holds" in done.stderr
    assert SLOT in done.stderr
    assert everything(tree) == before
