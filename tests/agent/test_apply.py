"""Applying: exact, refused as a whole, and repeatable."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import py_compile
import re
import signal
import struct
import subprocess
import sys
import time

import pytest

from fleetctl.agent import capture as capture_module
from fleetctl.agent.apply import apply
from fleetctl.errors import ApplyFailed, ExitCode, FleetError
from fleetctl.transaction import frame, wire
from fleetctl.transaction.failure import Drifted, LeaseTaken
from fleetctl.transaction.image import ABSENT
from fleetctl.transaction.step import MakeDirectory, RemoveFile, WriteFile

OLD_MODULE, NEW_MODULE = b"VALUE = 'old'\n", b"VALUE = 'new'\n"
SCRIPT, NEW_SCRIPT = b"#!/bin/bash\nexport FLAG=0\n", b"#!/bin/bash\nexport FLAG=1\n"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def test_applying_writes_what_was_asked_and_keeps_everything_else(ground):
    before = ground.look()

    ground.apply()

    after = ground.look()
    assert ground.module.read_bytes() == NEW_MODULE
    assert after["tree/serve/indexer.py"][:3] == before["tree/serve/indexer.py"][:3]
    assert after["tree/serve/indexer.py"][-1] == (("user.note", b"kept"),)
    assert after["tree/link.sh"] == before["tree/link.sh"]
    assert ground.script.read_bytes() == NEW_SCRIPT
    assert oct(ground.script.stat().st_mode & 0o7777) == "0o755"
    assert not (ground.tree / "obsolete.conf").exists()
    assert oct((ground.tree / "empty").stat().st_mode & 0o7777) == "0o600"
    assert oct((ground.tree / "fresh" / "deep").stat().st_mode & 0o7777) == "0o750"
    assert after["tree/untouched"] == before["tree/untouched"]
    assert list(ground.tree.rglob(".fleetctl*")) == []


def test_restoring_brings_back_every_byte_mode_owner_time_and_attribute(ground):
    before = ground.look()
    ground.apply()

    ground.agent.restore(transaction="tx")

    assert ground.look() == before


def test_the_old_bytecode_can_never_run_with_the_new_source(ground):
    assert ground.import_value() == "old"

    ground.apply()
    assert ground.import_value() == "new"

    ground.agent.restore(transaction="tx")
    assert ground.import_value() == "old"


def test_bytecode_that_python_would_never_check_is_removed_and_brought_back(ground):
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(ground.module), doraise=True, invalidation_mode=mode)
    before = ground.look()

    ground.apply()
    assert ground.import_value() == "new"

    ground.agent.restore(transaction="tx")
    assert ground.look() == before


def test_bytecode_under_a_prefix_is_removed_too(ground):
    prefix = ground.root / "cache"
    folder = prefix / str(ground.module.parent).lstrip("/")
    folder.mkdir(parents=True)
    (folder / "indexer.cpython-311.pyc").write_bytes(b"stale")
    (folder / "other.cpython-311.pyc").write_bytes(b"not ours")
    step = dataclasses.replace(ground.steps()[0], bytecode_prefix=str(prefix))

    ground.apply((step,))
    assert [path.name for path in folder.iterdir()] == ["other.cpython-311.pyc"]

    ground.agent.restore(transaction="tx")
    names = {path.name for path in folder.iterdir()}
    assert names == {"indexer.cpython-311.pyc", "other.cpython-311.pyc"}


def test_the_new_mtime_is_none_that_the_old_module_or_any_bytecode_claims(ground):
    now_s = int(time.time())
    taken = [now_s, now_s + 1, now_s + 2]
    os.utime(ground.module, (now_s + 1, now_s + 1))
    folder = ground.module.parent / "__pycache__"
    for number, claimed_s in enumerate(taken):
        header = struct.pack("<4sIII", b"magi", 0, claimed_s, len(OLD_MODULE))
        (folder / f"indexer.other-{number}.pyc").write_bytes(header)

    ground.apply((ground.steps()[0],))

    assert int(ground.module.stat().st_mtime) not in taken


def test_all_drifted_files_are_named_and_nothing_is_changed(ground):
    ground.module.write_bytes(b"somebody\n")
    ground.script.unlink()
    before = ground.look()

    with pytest.raises(Drifted) as refused:
        ground.apply()

    assert refused.value.paths == (str(ground.module), str(ground.tree / "link.sh"))
    assert ground.look() == before
    assert ground.agent.status().leases == ()


def test_a_file_that_appeared_where_none_was_expected_is_drift(ground):
    path = ground.tree / "surprise"
    path.write_bytes(b"hello")

    with pytest.raises(Drifted, match="no longer"):
        ground.apply((WriteFile(str(path), sha256(SCRIPT), None, ABSENT),))


def test_a_repeated_request_gets_the_same_answer_and_acts_once(ground):
    request = ground.request()
    first = apply(ground.edges, request)
    inode = ground.module.stat().st_ino

    again = apply(ground.edges, request)

    assert again.transaction == first.transaction
    assert ground.module.stat().st_ino == inode


def test_the_name_of_a_transaction_that_was_undone_is_not_used_again(ground):
    request = ground.request()
    apply(ground.edges, request)
    ground.agent.restore(transaction="tx", hold=True)

    with pytest.raises(ApplyFailed, match="tried before"):
        apply(ground.edges, request)


def test_a_second_controller_is_refused_with_the_name_of_the_first(ground):
    ground.apply()

    with pytest.raises(LeaseTaken, match="ann@desk") as refused:
        ground.agent.acquire(ground.lease(run_id="run-2"))

    assert refused.value.lease.run_id == "run-1"


def test_another_unit_of_the_same_host_is_free_but_not_the_same_files(ground):
    ground.apply()
    request = dataclasses.replace(
        ground.request((WriteFile(str(ground.module), sha256(SCRIPT), None, sha256(NEW_MODULE)),)),
        lease=ground.lease(unit="other.service"),
        transaction="tx2",
    )

    with pytest.raises(LeaseTaken, match="ann@desk"):
        apply(ground.edges, request)

    assert [held.lease.unit for held in ground.agent.status().leases] == [""]


def refusals(ground):
    """Plans that must not be performed, each with a word of the reason."""
    tree = ground.tree
    os.mkfifo(tree / "fifo")
    (tree / "first").write_bytes(OLD_MODULE)
    os.link(tree / "first", tree / "twin")
    (tree / "loop").symlink_to("loop")
    (tree / "away").symlink_to(ground.root)
    (ground.root / "outside").write_bytes(b"x")
    old = sha256(OLD_MODULE)
    new = sha256(NEW_MODULE)
    return {
        "fifo is not a regular file": WriteFile(str(tree / "fifo"), new, None, old),
        "serve is not a regular file": WriteFile(str(tree / "serve"), new, None, old),
        "hard links": WriteFile(str(tree / "twin"), new, None, old),
        "too many symlinks": WriteFile(str(tree / "loop"), new, None, old),
        "outside": WriteFile(str(tree / "away" / "outside"), new, None, sha256(b"x")),
        "symlink": RemoveFile(str(tree / "link.sh"), sha256(SCRIPT)),
        "No such file": WriteFile(str(tree / "nowhere" / "a.py"), new, None, ABSENT),
        "Not a directory|is not a directory": WriteFile(
            str(ground.module / "a.py"), new, None, ABSENT
        ),
        "has this name": MakeDirectory(str(ground.module)),
        "fleetctl's own": WriteFile(str(ground.state / "lock"), new, None, sha256(b"")),
    }


def test_what_cannot_be_undone_exactly_is_refused_before_any_change(ground):
    for why, step in refusals(ground).items():
        before = ground.look()
        within = (str(ground.tree),) if why == "outside" else ()
        request = ground.request((*ground.steps()[-1:], step), transaction="no", within=within)

        with pytest.raises(FleetError) as refused:
            apply(ground.edges, request)

        assert re.search(why, refused.value.why)
        assert refused.value.exit_code is ExitCode.REFUSED
        assert ground.look() == before


def test_a_plan_that_names_a_path_twice_is_refused(ground):
    step = ground.steps()[0]

    with pytest.raises(FleetError, match="twice"):
        ground.apply((step, step))


def test_a_plan_whose_contents_did_not_come_along_is_refused(ground):
    request = dataclasses.replace(ground.request(), contents={})

    with pytest.raises(FleetError, match="did not come along"):
        apply(ground.edges, request)


def test_a_full_disk_is_found_before_the_first_change(ground, monkeypatch):
    before = ground.look()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)

    with pytest.raises(ApplyFailed, match="No space left") as refused:
        ground.apply()

    assert refused.value.exit_code is ExitCode.REFUSED
    assert ground.look() == before
    assert ground.agent.status().transactions == ()


def test_an_immutable_file_is_found_before_the_first_change(ground):
    flag = subprocess.run(["chattr", "+i", str(ground.script)], check=False, capture_output=True)
    if flag.returncode != 0:
        pytest.skip("this file system has no immutable flag")
    try:
        before = ground.look()
        with pytest.raises(capture_module.Refused, match="immutable"):
            ground.apply()
        assert ground.look() == before
    finally:
        subprocess.run(["chattr", "-i", str(ground.script)], check=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_agent_that_is_told_to_end_undoes_everything_first(ground, number):
    before = ground.look()
    code = (
        "import os, signal, sys; from fleetctl.agent import perform; "
        f"perform._make_directory = lambda *a: os.kill(os.getpid(), {int(number)}); "
        "from fleetctl.agent.main import main; sys.exit(main())"
    )
    request = ground.request()
    blobs = dict(request.contents)
    header = {
        name: wire.encode(getattr(request, name), blobs)
        for name in ("lease", "transaction", "steps", "within")
    }
    done = subprocess.run(
        [sys.executable, "-c", code, "apply", str(ground.state)],
        input=frame.pack("request", "0" * 32, header, blobs),
        capture_output=True,
        check=False,
    )

    answer = frame.unpack("response", done.stdout)
    assert answer.header["failure"]["kind"] == "StepFailed"
    assert signal.Signals(number).name in answer.header["failure"]["why"]
    assert ground.look() == before
