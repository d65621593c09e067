"""Looking at a host: exact about what is there, whatever it is."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from fleetctl.transaction.snapshot import PathQuery, Query


def look(ground, *paths, content=False):
    query = Query(tuple(PathQuery(str(path), content=content) for path in paths))
    return ground.agent.observe(query).paths


def test_files_directories_links_and_nothing_are_told_apart(ground):
    file, folder, link, nothing, below_file = look(
        ground,
        ground.module,
        ground.tree,
        ground.tree / "link.sh",
        ground.tree / "nothing",
        ground.module / "below",
    )

    assert (file.kind, oct(file.mode), file.links) == ("file", "0o640", 1)
    assert file.mtime_ns == 1_700_000_000_123_456_789
    assert file.xattr_sha256
    assert folder.kind == "directory"
    assert (link.kind, link.link_target, link.real_path) == (
        "file",
        "serve.sh",
        str(ground.script),
    )
    assert nothing.kind == below_file.kind == "absent"


def test_contents_come_only_where_they_are_asked_for(ground):
    (without,) = look(ground, ground.script)
    (with_content, empty) = look(ground, ground.script, ground.tree / "empty", content=True)

    assert without.content is None
    assert with_content.content == ground.script.read_bytes()
    assert without.sha256 == with_content.sha256
    assert empty.content == b""


def test_a_file_of_200_mb_is_known_by_its_digest_and_said_to_be_too_big_to_edit(ground):
    with (ground.tree / "big").open("wb") as file:
        file.truncate(200 * 1024 * 1024)

    (big,) = look(ground, ground.tree / "big", content=True)

    assert (big.kind, big.content, len(big.sha256)) == ("file", None, 64)
    assert big.problem.startswith("it has 209715200 bytes")


def test_what_would_block_or_cannot_be_read_does_not_stop_the_look(ground):
    os.mkfifo(ground.tree / "fifo")
    (ground.tree / "dangling").symlink_to("nowhere")
    (ground.tree / "loop").symlink_to("loop")
    folder = Path(tempfile.mkdtemp())
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(folder / "socket"))

    fifo, dangling, loop, sock, device = look(
        ground,
        ground.tree / "fifo",
        ground.tree / "dangling",
        ground.tree / "loop",
        folder / "socket",
        "/dev/null",
    )

    server.close()
    (folder / "socket").unlink()
    folder.rmdir()
    assert (fifo.kind, sock.kind, device.kind) == ("other", "other", "other")
    assert (dangling.kind, dangling.link_target) == ("absent", "nowhere")
    assert loop.kind == "unreadable"
    assert loop.problem


def test_looking_leaves_no_trace_of_its_own(ground):
    before = sorted(path.name for path in ground.state.iterdir())

    look(ground, ground.module)

    assert sorted(path.name for path in ground.state.iterdir()) == before


@pytest.mark.parametrize("unit", ["no-such-unit.service"])
def test_a_unit_that_is_not_there_is_no_error(ground, unit):
    report = ground.agent.unit(unit)

    assert report.processes == ()
    assert report.main_pid == 0
