"""The serving tree holds what is deployed on real hosts, and nothing that only tests need."""

from __future__ import annotations

import shlex
import shutil
import subprocess

import pytest

from fleetctl.lab.serving_tree import (
    SLOTS,
    Service,
    default_tree_source,
    serve_script,
    tree_digest,
    write_tree,
)

SERVICE = Service("/srv/dsv4", "/usr/bin/python3", 30002)


@pytest.fixture
def source(labs, tmp_path):
    return shutil.copytree(labs.standin, tmp_path / "payload")


def test_tests_benches_and_caches_stay_behind(source, tmp_path):
    for name in ("test_x.py", "bench_x.py", "conftest.py", "__pycache__/x.cpython-311.pyc"):
        path = source / "indexer" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    write_tree(source, tmp_path / "tree", SERVICE)
    copied = {path.name for path in (tmp_path / "tree/python/payload/indexer").iterdir()}
    assert copied == {"__init__.py", "transient.py", "persistent_logits.py"}


def test_each_slot_has_the_bytes_of_the_variant_that_serves_by_default(source, tmp_path):
    write_tree(source, tmp_path / "tree", SERVICE)
    slots = tmp_path / "tree/python/serve/dsv4"
    assert {path.name for path in slots.iterdir()} == {"__init__.py", *SLOTS}
    for slot, found_as in SLOTS.items():
        assert (slots / slot).read_bytes() == (source / found_as).read_bytes()


def test_the_real_payload_has_everything_a_tree_needs(tmp_path):
    write_tree(default_tree_source(), tmp_path / "tree", SERVICE)
    assert (tmp_path / "tree/python/payload/engine/__main__.py").exists()


def test_the_digest_changes_with_what_is_deployed_and_with_nothing_else(source):
    before = tree_digest(source)
    (source / "indexer" / "test_more.py").write_text("")
    assert tree_digest(source) == before
    (source / "indexer" / "more.py").write_text("")
    assert tree_digest(source) != before


def test_the_serve_script_is_sound_bash_and_starts_one_server():
    text = serve_script(SERVICE)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert text.startswith("#!/usr/bin/env bash\n")
    assert text.count("\nexec ") == 1
    exports = [line for line in text.splitlines() if line.startswith("export SGLANG_")]
    settings = dict(shlex.split(line, comments=True)[1].split("=") for line in exports)
    assert settings == {
        "SGLANG_DSV4_BF16_INDEX_K": "1",
        "SGLANG_DSV4_TRITON_INDEXER": "0",
        "SGLANG_OPT_USE_MULTI_STREAM_OVERLAP": "1",
        "SGLANG_DSV4_GE_DIFF": "0",
        "SGLANG_DSV4_IDXK_CANARY": "0",
        "SGLANG_LOG_DECODE_GRAPH_KEY": "0",
    }


def test_further_arguments_of_the_engine_reach_it_word_by_word(tmp_path):
    engine = ("--depth", "2", "--note", "two words; $HOME")
    service = Service(str(tmp_path), "/bin/echo", 30002, engine, triton=True)
    text = serve_script(service)
    done = subprocess.run(["bash"], input=text, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("--cache serve.dsv4.cache --depth 2 --note two words; $HOME\n")
    assert "\nexport SGLANG_DSV4_TRITON_INDEXER=1\n" in text
