"""A search whose machine fails: hosts are back, the exit code says so, and what is lost is told."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fleetctl.errors import (
    ExitCode,
    HostError,
    HostKeyRejected,
    HostUnreachable,
    InputError,
    Interrupted,
    LeaseHeld,
    LoginRefused,
    NotReady,
    StoreError,
)
from fleetctl.store import run_folder, search_log
from fleetctl.store.run_folder import list_runs
from fleetctl.store.search_log import SearchLog
from fleetctl.transaction.lease import Lease
from fleetctl.workflow import bisect_loop, bisect_run
from fleetctl.workflow.bisect_run import Outside, run_search
from tests.workflow.matrices import fleet
from tests.workflow.searches import JOB, Asks, Site, facts, failed

BUILDS = [(0,), (1,), (2,)]


class Disk:
    """Appends lines to the logs of a run; from line `full_at` on it is full."""

    def __init__(self, append) -> None:
        self.full_at: int | None = None
        self.lines = 0
        self._append = append

    def append(self, path, line) -> None:
        if self.full_at is not None and self.lines >= self.full_at:
            raise StoreError(f"can't write {path}", why="No space left", next_step="free space")
        self.lines += 1
        self._append(path, line)


class Door:
    """Lets everybody in, or raises `error`; knows who is in."""

    error: Exception | None = None

    def __init__(self) -> None:
        self.inside: list[str] = []

    def __call__(self, name):
        if self.error:
            raise self.error
        self.inside.append(name)
        return SimpleNamespace(host_name=name, close=lambda: self.inside.remove(name))


@pytest.fixture
def disk(monkeypatch):
    made = Disk(run_folder.append_line)
    for module in (run_folder, search_log):
        monkeypatch.setattr(module, "append_line", made.append)
    return made


@pytest.fixture
def search(tmp_path, monkeypatch, disk):
    """Runs a search of three builds, of which the middle one does not start."""
    site = Site(lambda run: failed() if run.arm == "build 1" else facts(1))
    monkeypatch.setattr(bisect_loop, "held_site", site.held)
    monkeypatch.setattr(bisect_loop, "check_layout", lambda *_: None)
    ground = SimpleNamespace(of=lambda _: SimpleNamespace(add=lambda _: None))
    monkeypatch.setattr(bisect_loop, "Ground", ground)
    monkeypatch.setattr(bisect_run, "settle", lambda *_: None)
    site.connect, site.leases = Door(), ()
    jit, salts = SimpleNamespace(share=False), itertools.count()
    edges = SimpleNamespace(
        clock=SimpleNamespace(now_s=lambda: 0.0),
        holder="ann@desk",
        runs=tmp_path,
        salt=lambda: f"{next(salts):04x}",
        talk=SimpleNamespace(say=lambda _: None),
        connect=lambda name, _: site.connect(name),
        agent=lambda *_: SimpleNamespace(
            status=lambda: SimpleNamespace(leases=site.leases, transactions=())
        ),
    )
    job = replace(JOB, target="fleet", files={"b.toml": b""})

    def run(*, resume=False, target="fleet", must_work=()):
        return run_search(
            Outside(edges, fleet(1), resume),
            SimpleNamespace(spec=SimpleNamespace(jit=jit), job=replace(job, target=target)),
            lambda _folder, _held, _asked: Asks(*BUILDS, must_work=must_work),
            lambda _asked, _search, folder: (len(SearchLog(folder).answers()), "found"),
        )

    run.site = site
    run.folder = lambda: list_runs(tmp_path)[-1]
    return run


def lines_of_a_search(search, disk) -> int:
    """Return how many lines a whole search appends."""
    assert search() == 2
    return disk.lines


def test_a_disk_that_is_full_at_any_line_is_told_with_the_state_of_the_hosts(search, disk):
    for full_at in range(lines_of_a_search(search, disk)):
        search.site.__init__(search.site.behaviour)
        disk.lines, disk.full_at = 0, full_at

        with pytest.raises(StoreError) as told:
            search()

        touched = bool(search.site.measured)
        expected = ExitCode.FAILED_RESTORED if touched else ExitCode.REFUSED
        assert (full_at, told.value.exit_code) == (full_at, expected)


def test_what_a_full_disk_costs_is_said_and_true(search, disk):
    """The last line is `finished`: every run is measured by then, and none is made again."""
    disk.full_at, disk.lines = lines_of_a_search(search, disk) - 1, 0

    with pytest.raises(StoreError) as told:
        search()
    disk.full_at, made = None, len(search.site.measured)

    assert "measured runs that are kept: 2" in told.value.why
    assert f"`fleetctl resume {search.folder().run_id}`" in told.value.next_step
    assert search(resume=True) == 2
    assert len(search.site.measured) == made


@pytest.mark.parametrize("full_at", range(2, 8))
def test_a_search_goes_on_after_a_full_disk_without_a_run_that_counts_twice(search, disk, full_at):
    disk.full_at = full_at
    with pytest.raises(StoreError):
        search()
    disk.full_at = None

    assert search(resume=True) == 2
    numbers = [answer.asked.number for answer in SearchLog(search.folder()).answers()]
    assert numbers == [0, 1]


def test_a_site_that_is_taken_when_the_search_comes_back_to_it_was_changed_before(
    search, monkeypatch
):
    site = search.site

    def held(*_):
        if site.taken:
            raise LeaseHeld("a is held by bob", why="", next_step="wait")
        return site.held()

    monkeypatch.setattr(bisect_loop, "held_site", held)

    with pytest.raises(LeaseHeld) as told:
        search()

    assert told.value.exit_code is ExitCode.FAILED_RESTORED


def test_an_operator_who_ends_a_search_is_told_how_to_go_on(search):
    search.site.behaviour = lambda _: Interrupted("stopped", why="", next_step="")

    with pytest.raises(Interrupted) as told:
        search()

    assert told.value.next_step == f"`fleetctl resume {search.folder().run_id}` goes on"


def test_a_search_that_ends_since_nothing_starts_any_more_says_how_to_go_on(search):
    search.site.behaviour = lambda run: facts(1) if run.arm == "build 0" else failed()

    with pytest.raises(NotReady) as told:
        search(must_work=BUILDS)

    assert told.value.exit_code is ExitCode.FAILED_RESTORED
    assert f"`fleetctl resume {search.folder().run_id}` goes on from 1 measured run" in (
        told.value.next_step
    )


@pytest.mark.parametrize("kind", [HostUnreachable, HostKeyRejected, LoginRefused])
def test_a_search_whose_host_lets_nobody_in_leaves_no_run_folder(search, tmp_path, kind):
    search.site.connect.error = kind("h1 can't be used", why="it says no", next_step="look")

    with pytest.raises(HostError) as told:
        search()

    assert (type(told.value), told.value.exit_code) == (kind, ExitCode.REFUSED)
    assert list(tmp_path.iterdir()) == []


def test_a_search_whose_host_is_held_leaves_no_run_folder_that_latest_would_find(search, tmp_path):
    lease = Lease("l1", "run-7", "bob@lab", "e", "d.service", since_s=0.0, until_s=60.0)
    search.site.leases = (SimpleNamespace(lease=lease, expires_in_s=30.0),)

    with pytest.raises(LeaseHeld, match="is held by bob@lab") as told:
        search()

    assert told.value.exit_code is ExitCode.REFUSED
    assert list(tmp_path.iterdir()) == []
    assert search.site.connect.inside == []


def test_a_search_of_a_target_that_nothing_has_leaves_no_run_folder(search, tmp_path):
    with pytest.raises(InputError):
        search(target="nowhere")
    assert list(tmp_path.iterdir()) == []


def test_the_first_login_of_a_search_is_closed_again(search):
    assert search() == 2
    assert search.site.connect.inside == []
