"""Whoever unlocks leaves a name on the host; whoever comes back reads it there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetctl.errors import InputError
from fleetctl.host.agent_client import Agent
from fleetctl.host.endpoint import Backend, Endpoint
from fleetctl.host.shell import ShellTransport
from fleetctl.host.unlock_note import KEPT_NOTES, UnlockNotes


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def here(open_transport: Callable[[Endpoint, Backend], ShellTransport]) -> ShellTransport:
    return open_transport(Endpoint(name="here", address="localhost"), Backend.LOCAL)


@pytest.fixture
def notes(here: ShellTransport, state: Path) -> UnlockNotes:
    return UnlockNotes(here, str(state))


def test_a_note_says_who_and_when_and_only_of_its_own_lease(notes: UnlockNotes):
    notes.leave("abc-1", "bob@his lap'top $(id)")

    note = notes.read("abc-1")

    assert note is not None
    assert note.by == "bob@his lap'top $(id)"
    assert abs(note.at_s - time.time()) < 60
    assert notes.read("abc") is None


def test_a_note_that_was_taken_back_says_nothing(notes: UnlockNotes):
    notes.leave("abc", "bob@lap")
    notes.drop("abc")

    assert notes.read("abc") is None


def test_notes_are_for_nobody_else_and_few(notes: UnlockNotes, state: Path):
    for number in range(KEPT_NOTES + 3):
        notes.leave(f"lease-{number}", "bob@lap")

    kept = list((state / "unlocked").iterdir())

    assert len(kept) == KEPT_NOTES
    assert notes.read(f"lease-{KEPT_NOTES + 2}") is not None
    assert {path.stat().st_mode & 0o077 for path in [*kept, state / "unlocked"]} == {0}


def test_the_newest_note_stays_also_where_the_clock_was_set_back(notes: UnlockNotes, state: Path):
    for number in range(KEPT_NOTES):
        notes.leave(f"lease-{number}", "ann@desk")
        os.utime(state / "unlocked" / f"lease-{number}", (4e9, 4e9))

    notes.leave("lease-now", "bob@lap")

    assert notes.read("lease-now") is not None
    assert len(list((state / "unlocked").iterdir())) == KEPT_NOTES


@pytest.mark.parametrize("lease", ["../x", "", ".", "a/b", "-rf", "a\nb"])
def test_what_is_no_lease_s_id_names_no_file(notes: UnlockNotes, state: Path, lease: str):
    notes.leave(lease, "bob@lap")
    notes.drop(lease)

    assert notes.read(lease) is None
    assert list(state.iterdir()) == []


def test_a_host_that_fleetctl_never_was_on_gets_no_note(here: ShellTransport, tmp_path: Path):
    notes = UnlockNotes(here, str(tmp_path / "never"))

    notes.leave("abc", "bob@lap")

    assert notes.read("abc") is None
    assert not (tmp_path / "never").exists()


def test_a_host_without_room_loses_the_note_only(notes: UnlockNotes, state: Path):
    (state / "unlocked").write_text("a file where the folder should be")

    notes.leave("abc", "bob@lap")

    assert notes.read("abc") is None


def test_an_unlock_that_found_no_such_lease_is_not_noted(here: ShellTransport, state: Path):
    agent = Agent(here, state_dir=str(state))

    with pytest.raises(InputError, match="no lease has the id"):
        agent.unlock("expired-before", by="bob@lap")

    assert agent.unlocked("expired-before") is None
