"""The client finds, ships and understands its agent on hosts that make it hard."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import FleetError, InputError, InternalError, RemoteFailed
from fleetctl.host.agent_client import Agent, apply_deadline_s
from fleetctl.host.bundle import agent_bundle
from fleetctl.host.local import connect_local
from fleetctl.host.transport import Completed
from fleetctl.transaction.failure import with_facts
from fleetctl.transaction.snapshot import Query
from fleetctl.transaction.step import RestartUnit

PYENV = Path.home() / ".pyenv" / "versions"
VERSIONS = ["3.8.18", "3.9.18", "3.10.13", "3.11.7", "3.12.1", "3.13.0"]


class Recording:
    """A transport that counts channels, and may alter what passes."""

    def __init__(self, *, before=b"", after=b"", mangle=None):
        self.calls = []
        self._local = connect_local("here", clock=SystemClock())
        self._before, self._after, self._mangle = before, after, mangle

    host_name = "here"

    def run(self, argv, *, stdin=b"", deadline_s):
        self.calls.append((list(argv), stdin))
        done = self._local.run(argv, stdin=stdin, deadline_s=deadline_s)
        stdout = self._mangle(done.stdout) if self._mangle else done.stdout
        return Completed(done.exit_code, self._before + stdout + self._after, done.stderr)

    def close(self):
        self._local.close()


@pytest.fixture
def recording():
    made = []

    def make(**options):
        made.append(Recording(**options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def client(transport, tmp_path, **options):
    return Agent(transport, python=sys.executable, state_dir=str(tmp_path / "state"), **options)


def test_the_same_sources_make_the_same_agent():
    agent_bundle.cache_clear()
    first = agent_bundle()
    agent_bundle.cache_clear()

    assert agent_bundle() == first


def test_the_first_verb_ships_the_agent_and_every_later_one_is_one_channel(recording, tmp_path):
    transport = recording()
    agent = client(transport, tmp_path)

    agent.status()
    assert len(transport.calls) == 2
    agent.status()
    agent.status()
    assert len(transport.calls) == 4
    assert sum(agent_bundle().content in stdin for _, stdin in transport.calls) == 1


def test_agent_and_state_are_for_their_owner_only(recording, tmp_path):
    client(recording(), tmp_path).status()

    paths = [tmp_path / "state", *(tmp_path / "state").rglob("*")]
    assert len(paths) > 20
    assert [path for path in paths if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_on_every_python_a_host_may_have(recording, tmp_path, version):
    python = PYENV / version / "bin" / "python3"
    if not python.exists():
        pytest.skip(f"no Python {version} here")

    agent = Agent(recording(), python=str(python), state_dir=str(tmp_path / "state"))

    assert agent.observe(Query()).facts.python == version


def test_a_python_that_is_too_old_is_named(recording, tmp_path):
    python = PYENV / "3.7.16" / "bin" / "python3"
    if not python.exists():
        pytest.skip("no Python 3.7 here")
    agent = Agent(recording(), python=str(python), state_dir=str(tmp_path / "state"))

    with pytest.raises(RemoteFailed, match=r"3\.8 or newer on the host, not 3\.7"):
        agent.status()


def test_a_python_that_is_not_there_is_told_with_the_next_step(recording, tmp_path):
    agent = Agent(recording(), python="/no/python3", state_dir=str(tmp_path / "state"))

    with pytest.raises(RemoteFailed, match="gave no answer") as told:
        agent.status()

    assert "/no/python3" in told.value.next_step


def test_what_login_shells_print_around_an_answer_does_not_matter(recording, tmp_path):
    noise = b"Welcome to gpu-3!\r\nfleetctl-response is not this\n\x1b[2J\xff\xfe"
    agent = client(recording(before=noise, after=b"\nlogout\n"), tmp_path)

    agent.status()
    agent.status()


def test_an_answer_with_a_flipped_bit_is_refused(recording, tmp_path):
    client(recording(), tmp_path).status()

    def flip(data):
        place = data.rindex(b"answer")
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    with pytest.raises(RemoteFailed, match="altered"):
        client(recording(mangle=flip), tmp_path).status()


def test_an_agent_altered_on_its_way_is_never_run(recording, tmp_path, monkeypatch):
    transport = recording()
    agent = client(transport, tmp_path)
    real_run = transport.run

    def alter(argv, *, stdin=b"", deadline_s):
        content = agent_bundle().content
        return real_run(
            argv, stdin=stdin.replace(content, content[:-1] + b"!"), deadline_s=deadline_s
        )

    monkeypatch.setattr(transport, "run", alter)

    with pytest.raises(RemoteFailed, match="altered on its way"):
        agent.status()
    assert not (tmp_path / "state" / "agent").exists()


def test_a_directory_that_somebody_else_prepared_is_refused(recording, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can prepare directories as others")
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 65534, 65534)

    with pytest.raises(RemoteFailed, match="not a directory of our own"):
        client(recording(), tmp_path).status()


def test_a_name_that_could_be_a_path_never_becomes_one(recording, tmp_path):
    agent = client(recording(), tmp_path)

    for ask in (
        lambda: agent.restore(transaction="../../etc"),
        lambda: agent.unlock("../x"),
        lambda: agent.renew("a/b", length_s=10),
        lambda: agent.commit("/etc/passwd"),
    ):
        with pytest.raises(InputError, match="identifier"):
            ask()


def test_a_lease_without_end_is_refused(recording, tmp_path):
    agent = client(recording(), tmp_path)

    with pytest.raises(InputError, match="1 s to 7 days"):
        agent.renew("lease", length_s=-1)


def test_bugs_of_the_agent_arrive_as_such_with_their_traceback(recording, tmp_path):
    agent = client(recording(), tmp_path)

    with pytest.raises(InternalError, match="the agent failed in `juggle`") as told:
        agent._ask(object, "juggle", {}, deadline_s=10)

    assert "KeyError" in told.value.why


def test_the_deadline_of_an_apply_covers_its_undo():
    steps = [RestartUnit("x.service", soak_s=5, stop_deadline_s=90)]

    assert apply_deadline_s(steps) > 2 * 95


def test_facts_only_travel_under_known_names():
    error = with_facts(FleetError("w", why="y", next_step="n"), step="restart", other=1)

    assert vars(error)["step"] == "restart"
