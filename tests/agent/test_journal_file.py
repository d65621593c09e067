"""The journal on disk: no cut and no flipped bit ever leads to a wrong restore."""

from __future__ import annotations

import subprocess

import pytest

from fleetctl.agent.holding import Expiry, expire
from fleetctl.agent.journal_file import Damage, JournalFile, _checksum, line, parse
from fleetctl.agent.manner import Manner
from fleetctl.agent.revert import revert
from fleetctl.transaction.failure import LeaseTaken, NotBack
from fleetctl.transaction.image import NothingBefore
from fleetctl.transaction.journal import (
    Applied,
    Begun,
    Change,
    Committed,
    Done,
    Opened,
    Reverted,
    Reverting,
    State,
    pending_undo,
    state,
)
from fleetctl.transaction.lease import Lease
from fleetctl.transaction.step import ReloadUnits

LEASE = Lease("l", "r", "ann@desk", "p", "x.service", 0, 60)
CHANGES = (Change(ReloadUnits(), NothingBefore()),) * 3
ENDINGS = {
    "applied": [Applied(1.0)],
    "committed": [Applied(1.0), Committed(2.0), Committed(2.0)],
    "reverted": [Applied(1.0), Reverting(2.0, "why"), Reverted(3.0), Reverted(3.0)],
}


def journal_bytes(ending):
    steps = [entry for index in range(3) for entry in (Begun(index), Done(index))]
    opened = Opened("t", 1, 0.0, LEASE, CHANGES, (), 4096)
    entries = [opened, *steps, *ENDINGS[ending]]
    data = b"".join(line("t", number, entry) for number, entry in enumerate(entries))
    return data.ljust(4096, b"\0"), entries


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_intact_journal_reads_as_it_was_written(ending):
    data, entries = journal_bytes(ending)

    journal = parse("t", data)

    assert journal.entries == tuple(entries)
    assert journal.damage is Damage.NONE


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_journal_cut_at_any_byte_is_broken_whatever_it_still_says(ending):
    data, _ = journal_bytes(ending)

    for length in range(len(data)):
        assert parse("t", data[:length]).damage is Damage.BROKEN, length


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_bit_flipped_anywhere_never_changes_what_is_undone(ending, bit):
    data, entries = journal_bytes(ending)
    finished = state(entries) in {State.COMMITTED, State.REVERTED}
    wanted = pending_undo(entries)

    for place in range(len(data)):
        flipped = data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]
        journal = parse("t", flipped)
        if journal.damage is Damage.BROKEN:
            continue  # reported, and nothing is undone on such evidence
        if finished:
            assert state(journal.entries) is state(entries), place
        else:
            torn = journal.damage is Damage.TORN
            assert pending_undo(journal.entries, torn=torn) == wanted, place


def test_a_write_torn_at_any_byte_is_coped_with():
    data, entries = journal_bytes("applied")
    size = len(data.rstrip(b"\0"))
    last = size - len(line("t", len(entries) - 1, entries[-1]))

    for arrived in range(last, size):
        journal = parse("t", data[:arrived].ljust(4096, b"\0"))
        assert journal.damage in {Damage.NONE, Damage.TORN}
        assert len(journal.entries) >= len(entries) - 1


def test_entries_moved_from_another_transaction_are_no_entries():
    data, _ = journal_bytes("applied")

    assert parse("another", data).damage is Damage.BROKEN


def test_appending_after_a_torn_write_leaves_a_whole_journal(ground):
    ground.apply()
    file = JournalFile(ground.edges.state, "tx")
    intact = file.read()
    with file.path.open("r+b") as opened:
        opened.seek(intact.end)
        opened.write(b"17 half an entry that never arri")
    assert file.read().damage is Damage.TORN

    file.append(Reverting(1.0, "test"))

    assert file.read().damage is Damage.NONE
    assert file.read().entries == (*intact.entries, Reverting(1.0, "test"))


def test_the_file_never_grows_while_a_transaction_is_applied_and_undone(ground):
    ground.apply()
    file = JournalFile(ground.edges.state, "tx")
    length = file.path.stat().st_size

    ground.agent.restore(transaction="tx")

    assert file.path.stat().st_size == length


@pytest.mark.parametrize("keep", [0, 1, 100, 1000, -1])
def test_a_broken_journal_is_reported_and_nothing_is_undone_on_it(ground, keep):
    ground.apply()
    applied = ground.look()
    file = JournalFile(ground.edges.state, "tx")
    data = file.path.read_bytes()
    file.path.write_bytes(data[:keep])

    result = revert(ground.edges, "tx", Manner("test"))

    assert ground.look() == applied
    assert result.transactions == ()
    assert "by-hand.sh" in result.problems[0]
    held = {t.id: t for t in ground.agent.status().transactions}
    assert held["tx"].state == "damaged"
    file.path.write_bytes(data)


def test_a_broken_journal_is_over_when_somebody_settles_after_restoring_by_hand(ground):
    applied = ground.apply()
    file = JournalFile(ground.edges.state, "tx")
    file.path.write_bytes(file.path.read_bytes()[:100])
    ground.agent.release(applied.granted.lease.id)
    with pytest.raises(LeaseTaken, match="damaged"):
        ground.agent.acquire(ground.lease())
    subprocess.run(["sh", str(file.folder / "by-hand.sh")], check=True, capture_output=True)

    ground.agent.settle("tx")

    assert ground.agent.status().transactions == ()


def test_by_hand_every_byte_mode_owner_and_time_comes_back(ground):
    before = ground.look()
    ground.apply()
    script = JournalFile(ground.edges.state, "tx").folder / "by-hand.sh"

    subprocess.run(["sh", str(script)], check=True, capture_output=True)

    after = ground.look()
    for path in before:
        if "__pycache__" in path:
            continue  # Python makes it anew
        assert after[path][:5] == before[path][:5], path
    ground.agent.restore(transaction="tx")
    assert ground.look() == before


def written_by_another_version(data: bytes, number: int) -> bytes:
    """Return a journal whose entry of this number holds a kind that nobody here knows."""
    old = next(x for x in data.split(b"\n") if x.startswith(b"%d " % number))
    text = old.split(b" ", 2)[2].replace(b'{"@":"', b'{"@":"N', 1)
    return data.replace(old, b"%d %s %s" % (number, _checksum("tx", number, text), text), 1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_lease_over_a_change_of_another_version_is_left_to_the_dead_man_of_that_version(
    ground, number
):
    before = ground.look()
    applied = ground.apply()
    ground.kill_watcher(applied)
    lease_id = applied.granted.lease.id
    path = JournalFile(ground.edges.state, "tx").path
    ours = path.read_bytes()
    path.write_bytes(written_by_another_version(ours, number))

    with pytest.raises(NotBack, match="not back") as failed:
        ground.agent.release(lease_id)

    assert "it was written by another version of fleetctl" in failed.value.why
    path.write_bytes(ours)  # as that version reads it
    assert expire(ground.edges, lease_id) is Expiry.SETTLED
    assert ground.look() == before
    assert ground.agent.status().leases == ()
