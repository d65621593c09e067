"""What must be on disk before what: read from the system calls of a real apply and restore.

No plug is pulled here; these orders are what a power cut relies on.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from fleetctl.transaction import frame, wire

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")

CALLS = "fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlinkat,mkdirat,pwrite64,openat"
CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+)")


def traced(ground, verb, request, blobs):
    """Run a verb of the agent and return its calls as (name, arguments), failed ones left out."""
    header = {name: wire.encode(value, blobs) for name, value in request.items()}
    log = ground.root / "strace.log"
    strace = ["strace", "-qq", "-y", "-s", "200", "-o", str(log), "-e", f"trace={CALLS}"]
    agent = [sys.executable, "-I", "-S", str(ground.zipapp), verb, str(ground.state)]
    done = subprocess.run(
        [*strace, *agent],
        input=frame.pack("request", "0" * 32, header, blobs),
        capture_output=True,
        check=False,
    )
    assert "answer" in frame.unpack("response", done.stdout).header
    found = [CALL.match(line) for line in log.read_text(errors="replace").splitlines()]
    return [(m[1], m[2]) for m in found if m and not m[3].startswith("-")]


def traced_apply(ground):
    request = ground.request()
    fields = ("lease", "transaction", "steps", "within")
    return traced(
        ground,
        "apply",
        {name: getattr(request, name) for name in fields},
        dict(request.contents),
    )


def changes_of_the_tree(ground, calls):
    """Return the places of calls that change what the tree holds under its final names."""
    tree = str(ground.tree)
    return [
        place
        for place, (name, arguments) in enumerate(calls)
        if name in {"renameat", "renameat2", "linkat", "mkdirat"} and f"<{tree}" in arguments
    ]


def is_moved_aside(arguments):
    """Tell whether a call gives a file that was found there a temporary name."""
    return re.findall(r'"([^"]+)"', arguments)[-1].startswith(".fleetctl-")


def last_before(calls, place, wanted):
    """Return the place of the last call before `place` that `wanted` accepts."""
    return max((i for i, call in enumerate(calls[:place]) if wanted(*call)), default=-1)


def test_every_change_is_announced_in_the_journal_on_disk_before_it_happens(ground):
    calls = traced_apply(ground)
    changes = changes_of_the_tree(ground, calls)

    assert len(changes) >= 6
    for place in changes:
        begun = last_before(calls, place, lambda n, a: n == "pwrite64" and "journal.Begun" in a)
        synced = last_before(calls, place, lambda n, a: n == "fdatasync" and "/journal>" in a)
        assert -1 < begun < synced


def test_before_images_and_journal_are_on_disk_before_the_first_change(ground):
    calls = traced_apply(ground)
    first = changes_of_the_tree(ground, calls)[0]
    state = str(ground.state)

    objects = [i for i, (n, a) in enumerate(calls) if n == "rename" and f"{state}/objects/" in a]
    named = last_before(calls, first, lambda n, a: n == "fsync" and a.endswith("/objects>"))
    journal = last_before(calls, first, lambda n, a: n == "rename" and "transactions/tx" in a)
    settled = last_before(calls, first, lambda n, a: n == "fsync" and a.endswith("/transactions>"))
    assert len(objects) >= 5
    assert max(objects) < named < journal < settled < first


def test_a_new_file_is_whole_on_disk_before_it_gets_its_name_and_the_name_follows(ground):
    calls = traced_apply(ground)
    for place in changes_of_the_tree(ground, calls):
        name, arguments = calls[place]
        if name == "mkdirat" or is_moved_aside(arguments):
            continue
        temp = re.search(r'"(\.fleetctl-[0-9a-f]{32})"', arguments)
        folder = re.search(r"<([^>]+)>", arguments)
        assert temp
        assert folder
        content = last_before(calls, place, lambda n, a, t=temp[1]: n == "fsync" and t in a)
        later = [a for n, a in calls[place:] if n == "fsync"]
        assert content > -1
        assert any(a.endswith(f"<{folder[1]}>") for a in later)


def test_temporary_files_are_made_exclusively_under_names_that_nobody_can_guess(ground):
    calls = traced_apply(ground)
    made = [a for n, a in calls if n == "openat" and "O_CREAT" in a and f"<{ground.tree}" in a]

    assert len(made) >= 4
    for arguments in made:
        assert "O_EXCL" in arguments
        assert "O_NOFOLLOW" in arguments
        assert re.search(r'"\.fleetctl-[0-9a-f]{32}"', arguments)
    assert len(set(made)) == len(made)


def test_a_restore_is_announced_before_it_begins_and_ended_after_it_is_done(ground):
    ground.apply()
    request = {"transaction": "tx", "run_id": "", "on_conflict": "report", "hold": False}
    calls = traced(ground, "restore", request, {})
    changes = changes_of_the_tree(ground, calls)

    begun = last_before(
        calls, changes[0], lambda n, a: n == "pwrite64" and "journal.Reverting" in a
    )
    ended = last_before(calls, len(calls), lambda n, a: n == "pwrite64" and "journal.Reverted" in a)
    assert -1 < begun < changes[0]
    assert changes[-1] < ended
