"""Which bytecode belongs to a module, and which mtime no bytecode claims."""

from __future__ import annotations

import py_compile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.agent import bytecode


@pytest.mark.parametrize(
    ("name", "belongs"),
    [
        ("indexer.cpython-311.pyc", True),
        ("indexer.cpython-38.opt-1.pyc", True),
        ("indexer.pypy39.opt-2.pyc", True),
        ("indexer.cpython-313t.pyc", True),
        ("indexer2.cpython-311.pyc", False),
        ("my.indexer.cpython-311.pyc", False),
        ("indexer.pyc", False),
        ("indexer.cpython-311.pyc.1234", False),
        ("indexer_extra.cpython-311.pyc", False),
    ],
)
def test_every_interpreters_bytecode_of_the_module_and_no_others(tmp_path, name, belongs):
    (tmp_path / name).write_bytes(b"")

    found = bytecode.files_of("/t/indexer.py", [str(tmp_path)])

    assert found == ([str(tmp_path / name)] if belongs else [])


def test_what_is_no_module_has_no_bytecode(tmp_path):
    (tmp_path / "serve.cpython-311.pyc").write_bytes(b"")

    assert bytecode.files_of("/t/serve.sh", [str(tmp_path)]) == []


def test_a_module_behind_a_symlink_has_bytecode_where_it_is_imported_from_and_where_it_lies():
    paths = ("/import/a.py", "/real/a.py")

    assert bytecode.directories(paths, "/cache/") == [
        "/import/__pycache__",
        "/real/__pycache__",
        "/cache/import",
        "/cache/real",
    ]


def test_the_claim_of_a_bytecode_file_is_its_sources_mtime(tmp_path):
    source = tmp_path / "a.py"
    source.write_bytes(b"A = 1\n")
    timestamped = py_compile.compile(str(source), doraise=True)
    assert timestamped is not None
    claimed_s = bytecode.source_mtime_s(Path(timestamped).read_bytes())
    assert claimed_s == int(source.stat().st_mtime)

    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    hashed = py_compile.compile(str(source), doraise=True, invalidation_mode=mode)
    assert hashed is not None
    assert bytecode.source_mtime_s(Path(hashed).read_bytes()) is None
    assert bytecode.source_mtime_s(b"short") is None


@given(now_s=st.floats(1, 4e9), ahead=st.sets(st.integers(0, 9)))
def test_the_new_mtime_is_claimed_by_nobody(now_s, ahead):
    taken = {int(now_s) + seconds for seconds in ahead}

    mtime_s = bytecode.unused_mtime_s(now_s, taken)

    assert mtime_s not in taken
    assert mtime_s >= int(now_s)
