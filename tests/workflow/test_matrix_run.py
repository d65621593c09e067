"""Going on with a matrix: what is finished is reused while its content is the same."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import DriftError, HostUnreachable, InputError, Interrupted
from fleetctl.store.campaign import RunPhase
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow import campaign_worker, matrix_run
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.matrix_run import (
    LookedAt,
    look_at_sites,
    own_spec,
    resume_matrix,
    run_matrix,
)
from fleetctl.workflow.site import named_sites
from fleetctl.workflow.stopping import Stop, StoppableClock
from tests.workflow.matrices import TEXT, asked, fleet, result_of


class World:
    """Hosts that measure at once; the operator stops them after some runs."""

    def __init__(self, tmp_path, monkeypatch) -> None:
        self.said: list[str] = []
        self.measured: list[str] = []
        self.stops_after = 99
        self.runs = tmp_path / "runs"
        monkeypatch.setattr(campaign_worker, "held_site", self.held_site)
        monkeypatch.setattr(
            matrix_run,
            "look_at_sites",
            lambda _edges, inventory, matrix, **_: LookedAt(
                named_sites(inventory, matrix.job.target), (), {}
            ),
        )
        monkeypatch.setattr(matrix_run, "settle", lambda *_: None)

    def edges(self) -> Edges:
        self.stop = Stop()
        talk = SimpleNamespace(say=self.said.append, progress=lambda *_: None)
        clock = StoppableClock(SystemClock(), self.stop)
        return Edges(None, None, clock, self.stop, talk, "ann@desk", self.runs, lambda: "salt")

    @contextmanager
    def held_site(self, _edges, _inventory, _folder, _job, site):
        def measure(run, _job):
            if len(self.measured) == self.stops_after:
                self.stop.ask("signal SIGINT")
            self.stop.check()
            self.measured.append(run.cell)
            return result_of(run, site)

        yield SimpleNamespace(arm="", keepers=[], measure=measure)


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def begun(world, tmp_path, *, stops_after=5):
    """Run a matrix of 8 runs that is stopped, and return how it ended."""
    world.stops_after = stops_after
    end = run_matrix(world.edges(), fleet(1), asked(tmp_path, runs=2))
    world.stops_after = 99
    world.measured.clear()
    return end


def test_a_resumed_matrix_makes_only_what_is_missing(world, tmp_path):
    end = begun(world, tmp_path)
    assert isinstance(end.error, Interrupted)

    matrix, again = resume_matrix(world.edges(), fleet(1), RunFolder(end.folder.path))

    assert again.error is None
    assert len(world.measured) == 3
    assert len(again.reused) == 5
    assert len(again.results) == 8
    assert matrix.path.is_relative_to(end.folder.path)
    assert "reused: 5 of 8 runs are measured already" in world.said


def test_a_changed_file_reuses_the_cells_it_left_alone_and_says_which(world, tmp_path):
    end = begun(world, tmp_path, stops_after=99)
    changed = asked(tmp_path, runs=2, text=TEXT.replace('KEYS = "0"', 'KEYS = "2"'))

    _, again = resume_matrix(world.edges(), fleet(1), end.folder, changed)

    assert sorted(world.measured) == ["keys=fp8,overlap=off"] * 2 + ["keys=fp8,overlap=on"] * 2
    assert len(again.reused) == 4
    assert "  reused keys=bf16,overlap=on" in world.said
    assert "  not reused keys=fp8,overlap=on: its content has changed" in world.said
    assert own_spec(end.folder).parent.name == "spec-2"

    world.measured.clear()
    back = asked(tmp_path, runs=2)
    _, third = resume_matrix(world.edges(), fleet(1), end.folder, back)
    assert world.measured == []
    assert len(third.reused) == 8


def test_replicates_that_are_no_more_are_not_counted(world, tmp_path):
    end = begun(world, tmp_path, stops_after=99)
    fewer = asked(tmp_path, runs=1)

    _, again = resume_matrix(world.edges(), fleet(1), end.folder, fewer)

    assert world.measured == []
    assert len(again.results) == 4


def test_more_replicates_reuse_the_ones_that_are_there(world, tmp_path):
    end = begun(world, tmp_path, stops_after=99)

    _, again = resume_matrix(world.edges(), fleet(1), end.folder, asked(tmp_path, runs=3))

    assert len(world.measured) == 4
    assert len(again.results) == 12
    assert not again.state.in_phase(RunPhase.WAITING, RunPhase.FAILED)


def test_two_controllers_of_one_run_exclude_each_other(world, tmp_path):
    end = begun(world, tmp_path)

    with end.folder.claimed(), pytest.raises(InputError, match="still going on"):
        resume_matrix(world.edges(), fleet(1), end.folder)


def test_a_run_that_is_no_matrix_is_refused(world, tmp_path):
    folder = RunFolder.create(tmp_path, "r", {"kind": "experiment"})

    with pytest.raises(InputError, match="is no matrix"):
        resume_matrix(world.edges(), fleet(1), folder)


@pytest.mark.parametrize("all_absent", [False, True])
def test_hosts_that_do_not_answer_are_left_out_while_others_do(tmp_path, monkeypatch, all_absent):
    def look_at(_edges, _inventory, _matrix, site):
        if all_absent or site.name == "h1":
            raise HostUnreachable(f"{site.name} does not answer", why="", next_step="")
        return SimpleNamespace(hosts=[])

    monkeypatch.setattr(matrix_run, "_look_at", look_at)
    said: list[str] = []
    edges = SimpleNamespace(talk=SimpleNamespace(say=said.append))
    if all_absent:
        with pytest.raises(HostUnreachable):
            look_at_sites(edges, fleet(), asked(tmp_path))
        return

    looked = look_at_sites(edges, fleet(), asked(tmp_path))

    assert len(looked.plans) == 2
    assert list(looked.absent) == ["h1"]
    assert said == ["h1 can't be used now: h1 does not answer"]


def test_a_host_that_is_not_what_the_spec_says_stops_a_new_matrix_before_it_starts(
    tmp_path, monkeypatch
):
    def look_at(_edges, _inventory, _matrix, site):
        raise DriftError(f"{site.name} has no usable unit", why="", next_step="")

    monkeypatch.setattr(matrix_run, "_look_at", look_at)
    edges = SimpleNamespace(talk=SimpleNamespace(say=lambda _line: None))

    with pytest.raises(DriftError):
        look_at_sites(edges, fleet(), asked(tmp_path))
