"""`repro`, `classify` and `reclassify` as a user runs them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from fleetctl.cli.boundary import run_guarded
from fleetctl.cli.classify import classify, reclassify
from fleetctl.cli.repro import repro
from fleetctl.cli.results import results
from fleetctl.store.run_folder import RunFolder
from fleetctl.trial.classes import classifier_version

GOLDEN = Path(__file__).parent.parent / "golden" / "sessions"
Fleetctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fleetctl(monkeypatch, capsys, tmp_path) -> Fleetctl:
    """Run a command line; returns exit code, stdout and stderr."""
    app = typer.Typer(pretty_exceptions_enable=False)
    for command in (repro, classify, reclassify):
        app.command()(command)
    app.add_typer(results, name="results")
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fleetctl", *map(str, words)])
        code = run_guarded(app)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_repro_prints_the_peoples_line_and_the_finer_classes(fleetctl, serve, tmp_path):
    server = serve(first_delay_s=0.1)
    code, out, err = fleetctl("repro", "--url", server.url, "--sessions", 4)
    assert (code == 0) == ("INVALID" not in out)
    lines = out.splitlines()
    assert lines[0] == (
        "CORRUPTION sessions: 0/4 = 0%  (leak=0 no_tool=0 error=0 ok-ish[done/maxrounds]=4)"
    )
    assert lines[1].startswith("classes: infra=0 timeout=0")
    assert "12 of 12 requests answered, 4 at once" in out
    assert "model fake" in err
    assert "sessions: " in err
    (folder,) = tmp_path.glob("runs/repro-*")
    assert (folder / "transcripts.0.jsonl.gz").is_file()
    assert fleetctl("results", "show", folder.name)[1] == out
    assert fleetctl("results", "list")[1].split()[:4] == [folder.name, "finished", "repro", "fake"]
    shown = json.loads(fleetctl("results", "show", "latest", "--json")[1])
    assert shown["line"] == lines[0]


def test_repro_prints_json_and_keeps_transcripts_that_reclassify_reproduces(
    fleetctl, serve, tmp_path
):
    server = serve(mode="leaky", from_round=2, first_delay_s=0.1)
    code, out, _ = fleetctl(
        "repro", "--url", server.url, "--sessions", 3, "--out", tmp_path / "run", "--json"
    )
    result = json.loads(out)
    assert (code == 0) == result["is_valid"]
    assert (result["corrupted"], result["counts"]["leak"]) == (3, 3)
    assert result["outcomes"][0]["findings"][0]["flag"] == "leak_content"
    code, out, _ = fleetctl("reclassify", tmp_path / "run", "--json")
    (trial,) = json.loads(out)["trials"]
    assert code == 0
    assert trial["is_reproduced"]
    assert trial["counts"] == result["counts"]
    code, out, _ = fleetctl("reclassify", tmp_path / "run")
    assert "reproduced" in out
    assert result["line"] in out


def test_repro_that_is_stopped_says_where_its_sessions_are_and_how_to_go_on(
    fleetctl, serve, tmp_path, monkeypatch
):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    server = serve(first_delay_s=0.1)
    monkeypatch.setattr("fleetctl.serving.trial.run_trial", stopped)
    code, out, err = fleetctl("repro", "--url", server.url, "--out", "runs/my own")

    assert (code, out) == (130, "")
    assert "0 of 40 sessions had ended; their transcripts are in runs/my own" in err
    assert "`fleetctl reclassify 'runs/my own'`" in err
    assert f"`fleetctl repro --url {server.url} --out 'runs/my own'` starts anew" in err
    assert fleetctl("results", "list")[1].split()[:3] == ["my", "own", "unfinished"]


def test_repro_never_takes_the_folder_of_another_run(fleetctl, serve, tmp_path):
    RunFolder.create(tmp_path, "mine", {"kind": "experiment"})
    server = serve(first_delay_s=0.1)

    code, _, err = fleetctl("repro", "--url", server.url, "--out", tmp_path / "mine")

    assert code == 3
    assert "is the folder of another run" in err
    assert RunFolder(tmp_path / "mine").kind == "experiment"


def test_repro_tells_corrupt_sessions_with_their_evidence(fleetctl, serve):
    server = serve(mode="wrong_value", first_delay_s=0.1)
    _, out, _ = fleetctl("repro", "--url", server.url, "--sessions", 2)
    assert "corrupt: session 0, round 1: arg_mismatch" in out


def test_repro_against_nothing_says_what_to_do(fleetctl):
    code, out, err = fleetctl("repro", "--url", "http://127.0.0.1:1")
    assert (code, out) == (3, "")
    assert "nothing answers at http://127.0.0.1:1" in err
    assert "why: nothing listens on the port\n" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["repro"], "--url"),
        (["repro", "--url", "127.0.0.1:30000"], "http"),
        (["repro", "--url", "http://h", "--cache-mode", "none"], "unique"),
        (["classify", "no/such/file"], "no/such/file"),
        (["reclassify", "no/such/run"], "no/such/run"),
    ],
)
def test_wrong_arguments_are_named_and_refused(fleetctl, words, said):
    code, _, err = fleetctl(*words)
    assert code in {2, 3}
    assert said in err


def test_an_invalid_trial_exits_8_and_says_why(fleetctl, serve):
    server = serve(mode="rate_limited")
    code, out, _ = fleetctl("repro", "--url", server.url, "--sessions", 3)
    assert code == 8
    assert "CORRUPTION sessions: 0/0 = n/a" in out
    assert "INVALID: no session says anything" in out


def test_the_bearer_token_is_sent_and_never_kept(fleetctl, serve, tmp_path, monkeypatch):
    monkeypatch.setenv("FLEETCTL_API_KEY", "canary-secret-71")
    server = serve(first_delay_s=0.1)
    _, out, err = fleetctl("repro", "--url", server.url, "--sessions", 2, "--out", tmp_path)
    assert "canary-secret-71" not in out + err
    for file in tmp_path.iterdir():
        data = file.read_bytes()
        text = gzip.decompress(data) if file.suffix == ".gz" else data
        assert b"canary-secret-71" not in text
    assert server.behaviour.tokens == {"Bearer canary-secret-71"}


def test_classify_names_class_and_evidence_per_session_and_sums_up(fleetctl):
    files = [GOLDEN / "leak_content.json", GOLDEN / "done_text.json", GOLDEN / "infra_429.json"]
    code, out, _ = fleetctl("classify", *files)
    assert code == 0
    assert 'leak_content.json: session 0, round 1: leak, leak_content: "deepseek_dsml full' in out
    assert "done_text.json: session 0, round 1: done" in out
    assert "CORRUPTION sessions: 1/2 = 50%" in out
    assert "infra=1 (not counted)" in out


def test_classify_reads_raw_streams_responses_and_histories(fleetctl, tmp_path):
    golden = json.loads((GOLDEN / "leak_content.json").read_text("utf-8"))
    raw = tmp_path / "raw.sse"
    raw.write_text(golden["sse"], "utf-8")
    response = tmp_path / "response.json"
    message = {"role": "assistant", "content": "[TOOL_CALLS][{}]"}
    response.write_text(json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}))
    history = tmp_path / "history.json"
    history.write_text(json.dumps([{"role": "user", "content": "Hello."}, message]))
    lines = tmp_path / "many.jsonl"
    lines.write_text(response.read_text() + "\n" + json.dumps({"messages": [message]}) + "\n")
    code, out, _ = fleetctl("classify", raw, response, history, lines, "--json")
    found = json.loads(out)
    assert code == 0
    assert [session["outcome"] for session in found["sessions"]] == ["leak"] * 5
    assert (found["counts"]["leak"], sum(found["counts"].values())) == (5, 5)


def test_classify_takes_request_and_truth_from_beside_a_raw_stream(fleetctl, tmp_path):
    golden = json.loads((GOLDEN / "cross_talk_arguments.json").read_text("utf-8"))
    for name in ("sse", "request", "truth"):
        text = golden[name] if name == "sse" else json.dumps(golden[name])
        (tmp_path / name).write_text(text, "utf-8")
    _, out, _ = fleetctl("classify", "sse")
    assert "maxrounds" in out
    _, out, _ = fleetctl("classify", "sse", "--request", "request", "--truth", "truth")
    assert "cross_talk, foreign_value" in out


def test_a_truth_with_an_unknown_key_is_refused_and_the_known_ones_are_named(fleetctl, tmp_path):
    (tmp_path / "truth").write_text('{"tol": "lookup_order"}')
    code, _, err = fleetctl("classify", GOLDEN / "done_text.json", "--truth", "truth")
    assert code == 3
    assert "`tol`" in err
    assert "arguments, contains" in err


def test_classify_refuses_what_is_no_conversation_with_its_place(fleetctl, tmp_path):
    file = tmp_path / "odd.json"
    file.write_text('{"choices": []}\n{"neither": 1}\n')
    code, _, err = fleetctl("classify", file)
    assert code == 3
    assert "odd.json:2" in err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.gz", b""),
        ("a.gz", b"\x1f\x8b\x08\0\0"),
        ("a.gz", b"no gzip"),
        # without a time: an id that differs between two processes would be two tests
        ("a.gz", gzip.compress(b'{"kind": "session"}', mtime=0)),
        ("a.json", b""),
        ("a.json", b"{torn"),
        ("a.json", b"\xff\xfe\0"),
        ("a.json", b"[" * 100_000),
        ("absent.json", None),
    ],
)
def test_a_damaged_file_is_named_and_the_others_are_classified(fleetctl, tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    whole = GOLDEN / "leak_content.json"
    code, out, err = fleetctl("classify", whole, tmp_path / name, GOLDEN / "done_text.json")
    assert code == 3
    assert "CORRUPTION sessions: 1/2 = 50%" in out
    assert err.count("error:") == 1
    assert name in err
    _, out, _ = fleetctl("classify", whole, tmp_path / name, "--json")
    (told,) = json.loads(out)["not_understood"]
    assert told["file"] == str(tmp_path / name)


def test_of_files_that_can_not_be_read_every_one_is_named(fleetctl):
    code, out, err = fleetctl("classify", "a", "nofile", "--json")

    assert code == 3
    error = json.loads(out)["error"]
    for told in (err, error["why"]):
        assert "can't read a: No such file or directory" in told
        assert "can't read nofile: No such file or directory" in told


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{torn", "it is no JSON: nothing from line 1, column 2 on can be read"),
        ("[" * 100_000, "it nests too deep"),
        ('{"exchanges": 7}', "a value in it is of another kind than it has to be"),
        ('{"kind": "session"}', "`truth` is missing"),
    ],
)
def test_why_a_file_is_no_conversation_is_told_in_words(fleetctl, tmp_path, content, why):
    (tmp_path / "odd.json").write_text(content)

    _, _, err = fleetctl("classify", "odd.json")

    assert why in err
    assert "Error" not in err


def test_reclassify_names_damage_and_exits_8(fleetctl, serve, tmp_path):
    server = serve(first_delay_s=0.1)
    fleetctl("repro", "--url", server.url, "--sessions", 2, "--out", tmp_path / "run")
    file = tmp_path / "run" / "transcripts.0.jsonl.gz"
    file.write_bytes(file.read_bytes() + gzip.compress(b"[]"))
    code, out, _ = fleetctl("reclassify", tmp_path / "run")
    assert code == 8
    assert "DAMAGED a transcript is damaged" in out
    assert "0/2 = 0%" in out


def test_reclassify_shows_what_a_newer_classifier_changes(fleetctl, serve, tmp_path):
    server = serve(mode="leaky", first_delay_s=0.1)
    fleetctl("repro", "--url", server.url, "--sessions", 2, "--out", tmp_path / "run")
    file = tmp_path / "run" / "transcripts.0.jsonl.gz"
    text = gzip.decompress(file.read_bytes()).decode()
    aged = []
    for line in map(json.loads, text.splitlines()):
        if line["kind"] == "session":
            line["classifier"] = "0.0.0"
            line["outcome"] |= {"outcome": "no_tool", "flags": ["answered_instead"]}
        aged.append(json.dumps(line))
    file.write_bytes(gzip.compress("\n".join(aged).encode()))
    code, out, _ = fleetctl("reclassify", tmp_path / "run")
    assert code == 0
    assert "sessions that change: 2" in out
    assert "session 0: no_tool -> leak (answered_instead, leak_content)" in out
    file.write_bytes(gzip.compress("\n".join(aged).replace("0.0.0", classifier_version()).encode()))
    code, out, _ = fleetctl("reclassify", tmp_path / "run")
    assert code == 8


def test_the_self_test_states_the_ceiling(fleetctl):
    code, out, err = fleetctl("repro", "--self-test", "--most", 25)
    # a machine that is busy with other tests may fail at the first step, and says so
    driven = 25 if "25 streams: ok" in err else 0
    assert f"drives {driven} streams of 50 tokens/s" in out
    assert code == (0 if driven else 8)


def test_a_model_that_is_not_served_is_refused_with_what_is(fleetctl, serve):
    server = serve()

    code, _, err = fleetctl("repro", "--url", server.url, "--model", "nope", "--sessions", 2)

    assert code == 3
    assert "does not serve `nope`" in err
    assert "fake" in err


def test_a_trial_in_which_nothing_was_answered_is_invalid_and_says_why(fleetctl, serve):
    server = serve(mode="bad_request")

    code, out, _ = fleetctl("repro", "--url", server.url, "--sessions", 3)

    assert code == 8
    assert "no request was answered: http_error, 400" in out


def test_reclassify_takes_a_run_by_its_id_as_results_do(fleetctl, serve, tmp_path):
    server = serve()
    fleetctl("repro", "--url", server.url, "--sessions", 2, "--out", tmp_path / "runs/20990101-x")
    (tmp_path / "runs/20990101-x/run.json").write_text("{}")

    code, out, _ = fleetctl("reclassify", "latest")

    assert code == 0
    assert "CORRUPTION sessions: 0/2" in out

    (tmp_path / "runs").rename(tmp_path / "archive")
    code, moved, _ = fleetctl("reclassify", "latest", "--runs", "archive")

    assert (code, moved) == (0, out.replace("runs/", "archive/"))
