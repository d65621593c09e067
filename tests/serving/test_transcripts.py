"""Transcripts survive kills and full disks, and say where they are damaged."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.errors import InputError
from fleetctl.serving.transcripts import (
    NoTranscripts,
    TranscriptFailed,
    TranscriptFile,
    TranscriptFolder,
    read_transcripts,
)


def lines(path: Path) -> list[dict]:
    return list(read_transcripts(path))


def written(path: Path, *numbers: int) -> bytes:
    file = TranscriptFile(path)
    for number in numbers:
        file.write({"n": number, "text": "x" * number})
    file.close()
    return path.read_bytes()


def test_lines_come_back_in_order_and_ordinary_gzip_reads_them(tmp_path):
    path = tmp_path / "deep" / "t.jsonl.gz"
    written(path, 1, 2, 3)
    assert [line["n"] for line in lines(path)] == [1, 2, 3]
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == 3
    assert oct(path.stat().st_mode)[-3:] == "600"


def test_each_line_is_on_its_way_to_the_disk_before_the_next_begins(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    file = TranscriptFile(path)
    for number in range(3):
        file.write({"n": number})
        assert len(lines(path)) == number + 1
    file.close()


def test_a_file_cut_anywhere_keeps_every_whole_line_and_can_be_continued(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    ends = [len(written(path, number)) for number in range(4)]
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        kept = sum(end <= cut for end in ends)
        assert [line["n"] for line in lines(path)] == list(range(kept))
        written(path, 99)
        assert [line["n"] for line in lines(path)] == [*range(kept), 99]


def test_nothing_of_a_long_torn_line_stays_behind_a_short_new_one(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    kept = written(path, 1)
    file = TranscriptFile(path)
    file.write({"n": 2, "noise": os.urandom(5000).hex()})
    file.close()
    path.write_bytes(path.read_bytes()[:-1])
    assert path.stat().st_size > len(kept) + 5000
    written(path, 3)
    assert [line["n"] for line in lines(path)] == [1, 3]
    assert path.stat().st_size < len(kept) + 200


def test_damage_before_the_end_is_reported_and_never_skipped(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    data = bytearray(written(path, 500, 500, 500))
    data[len(data) // 3 + 12] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        lines(path)
    assert "damaged" in caught.value.what


def test_a_file_that_is_not_there_or_no_gzip_is_refused(tmp_path):
    with pytest.raises(InputError):
        lines(tmp_path / "none.jsonl.gz")
    (tmp_path / "odd.jsonl.gz").write_bytes(b"plain text, no gzip at all")
    with pytest.raises(InputError):
        lines(tmp_path / "odd.jsonl.gz")


@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=50)), max_size=5))
def test_any_text_comes_back(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("any") / "t.jsonl.gz"
    file = TranscriptFile(path)
    for value in values:
        file.write(value)
    file.close()
    assert lines(path) == values


WRITER = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from fleetctl.serving.transcripts import TranscriptFile
    file = TranscriptFile(Path(sys.argv[1]))
    for number in range(10**9):
        file.write({"n": number, "text": "y" * 1000})
        print(number, flush=True)
    """
)


def test_a_killed_writer_loses_at_most_the_line_it_was_writing(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as writer:
        for said in writer.stdout:
            if int(said) >= 50:
                break
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
    said = int(rest[-1]) if rest else 50
    found = [line["n"] for line in lines(path)]
    assert found == list(range(len(found)))
    assert len(found) >= said + 1


FULL = textwrap.dedent(
    """
    import json, os, resource, signal, sys
    from pathlib import Path
    from fleetctl.serving.transcripts import TranscriptFailed, TranscriptFile
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    file = TranscriptFile(Path(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
    done = 0
    try:
        while True:
            file.write({"n": done, "noise": os.urandom(600).hex()})
            done += 1
    except TranscriptFailed as error:
        assert "t.jsonl.gz" in error.what and error.why and error.next_step
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, resource.RLIM_INFINITY))
    file.write({"n": done})
    file.close()
    print(done)
    """
)


def test_a_write_that_finds_no_room_leaves_the_file_whole_and_says_so(tmp_path):
    path = tmp_path / "t.jsonl.gz"
    said = subprocess.run(
        [sys.executable, "-c", FULL, path], capture_output=True, text=True, check=True
    )
    done = int(said.stdout)
    assert 3 < done < 20
    assert [line["n"] for line in lines(path)] == list(range(done + 1))


def test_a_folder_that_can_not_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(TranscriptFailed) as caught:
        TranscriptFolder(tmp_path / "file" / "run").open(0)
    assert "file" in caught.value.what


def test_stores_can_travel_to_other_processes(tmp_path):
    for store in (TranscriptFolder(tmp_path), NoTranscripts()):
        assert pickle.loads(pickle.dumps(store)) == store


def test_a_folder_has_one_file_per_client_process(tmp_path):
    folder = TranscriptFolder(tmp_path)
    for shard in range(3):
        sink = folder.open(shard)
        sink.write({"shard": shard})
        sink.close()
    assert [lines(file)[0]["shard"] for file in folder.files()] == [0, 1, 2]
    assert json.loads(gzip.decompress(folder.files()[2].read_bytes())) == {"shard": 2}
