"""Sites take cells until none is left, whatever hosts, cells and people do meanwhile."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import (
    ConnectionLost,
    DriftError,
    ExitCode,
    FleetError,
    HostUnreachable,
    Interrupted,
    LeaseHeld,
    NotReady,
    NotRestored,
    StoreError,
)
from fleetctl.store.campaign import RunPhase
from fleetctl.workflow import campaign_worker
from fleetctl.workflow.campaign import Campaign
from fleetctl.workflow.campaign_turns import Turns
from fleetctl.workflow.matrix import cell_runs
from fleetctl.workflow.site import named_sites
from tests.workflow.campaigns import DEADLINE_S, Fleet, a_bench
from tests.workflow.matrices import asked, fleet


@pytest.fixture
def bench(tmp_path, monkeypatch):
    with a_bench(tmp_path, monkeypatch) as made:
        yield made


def failing(kind: type[FleetError], what: str = "it failed") -> FleetError:
    return kind(what, why="", next_step="look")


def test_equal_hosts_share_the_cells_and_each_run_is_measured_once(bench):
    world = Fleet()

    end = bench.run(world)

    assert end.error is None
    assert len(end.results) == 8 == len({run for _, run in world.measured})
    assert len({site for site, _ in world.measured}) == 3
    assert world.most_at_once > 1


def test_sites_of_one_machine_take_turns_unless_the_matrix_allows_more(bench):
    world = Fleet()

    bench.run(world, fleet(3, machine="box"))

    assert world.most_at_once == 1
    assert len({site for site, _ in world.measured}) == 3


def test_more_sites_of_one_machine_work_at_once_where_that_is_allowed(bench):
    world = Fleet()

    bench.run(world, fleet(3, machine="box"), rules="per_machine = 2")

    assert world.most_at_once == 2


def test_a_busy_host_is_waited_for_while_others_take_its_cells(bench):
    def opening(site):
        if site == "h2":
            raise failing(LeaseHeld, "h2 is held by bob@lab")

    end = bench.run(Fleet(opening=opening))

    assert end.error is None
    assert {result.site for result in end.results} == {"h1", "h3"}
    assert any("h2 waits: h2 is held by bob@lab; its cells go to other" in s for s in bench.said)


def test_a_host_that_is_free_again_takes_cells_again(bench):
    looks: Counter[str] = Counter()

    def opening(site):
        looks[site] += 1
        if looks[site] < 3:
            raise failing(LeaseHeld, "held by bob")

    end = bench.run(Fleet(opening=opening), fleet(1))

    assert end.error is None
    assert len(end.results) == 8
    assert "h1 takes cells (again)" in bench.said


def test_a_campaign_whose_every_host_stays_busy_ends_and_says_what_is_left(bench):
    def opening(_site):
        raise failing(LeaseHeld, "held by bob")

    end = bench.run(Fleet(opening=opening), rules='patience = "30s"')

    assert end.error.what == "8 of 8 cell runs were not measured"
    assert "--resume r" in end.error.next_step
    assert set(end.state.quarantined) == {"h1", "h2", "h3"}


def test_a_host_that_drops_out_gives_its_cell_to_another(bench):
    def measuring(site, _run):
        if site == "h1":
            raise failing(ConnectionLost, "the power is gone")

    def opening(site):
        if site == "h1" and any(s == "h1" for s, _ in dropped):
            raise failing(HostUnreachable, "h1 does not answer")

    dropped: list[tuple[str, str]] = []

    def lose(site, run):
        if site == "h1":
            dropped.append((site, run.id))
        measuring(site, run)

    end = bench.run(Fleet(opening=opening, measuring=lose))

    assert end.error is None
    assert len(dropped) == 1
    assert dropped[0][1] in {result.id for result in end.results}
    assert {result.site for result in end.results} == {"h2", "h3"}


def test_a_failed_cell_does_not_stop_the_others_and_is_tried_on_another_host(bench):
    tried: list[str] = []

    def measuring(site, run):
        if run.cell == "keys=fp8,overlap=on" and run.run == 0:
            tried.append(site)
            raise failing(NotReady, "it never answered")

    end = bench.run(Fleet(measuring=measuring))

    assert end.error.exit_code is ExitCode.FAILED_RESTORED
    assert end.error.what == "1 of 8 cell runs could not be measured"
    assert len(end.results) == 7
    assert len(tried) == 2
    (state,) = end.state.in_phase(RunPhase.FAILED)
    assert state.why == "it never answered"


def test_a_failed_cell_ends_a_campaign_that_is_to_fail_fast(bench):
    def measuring(_site, run):
        if run.position == 0:
            raise failing(NotReady, "it never answered")

    end = bench.run(Fleet(measuring=measuring), fleet(1), fails_fast=True, runs=8)

    assert end.error.what == "it never answered"
    assert end.state.in_phase(RunPhase.WAITING)


IN_VAIN = {"counted": 0, "void_because": ("exec: x: not found",), "program_exit": 127}


def test_a_program_that_does_not_get_going_ends_the_campaign_after_two_trials(bench):
    world = Fleet(measuring=lambda _site, _run: IN_VAIN)

    end = bench.run(world, fleet(1), runs=4)

    assert len(world.measured) == 2
    assert end.error.what == "the workload's program does not get going, so nothing was measured"
    assert "`fleetctl matrix --resume r` where only the program" in end.error.next_step
    told = [state.why for state in end.state.in_phase(RunPhase.WAITING)]
    assert len(told) == 16
    assert any("does not get going" in why for why in told)
    assert not end.state.quarantined


def test_all_sites_learn_that_a_program_does_not_get_going(bench):
    world = Fleet(measuring=lambda _site, _run: IN_VAIN)

    end = bench.run(world, fleet(3), runs=9)

    assert len(world.measured) <= 2 + 2  # two others may have begun a trial by then
    assert "does not get going" in end.error.what


@pytest.mark.parametrize("facts", [IN_VAIN | {"program_exit": 1}, IN_VAIN | {"program_exit": None}])
def test_a_program_that_fails_by_itself_only_fails_its_cells(bench, facts):
    world = Fleet(measuring=lambda _site, _run: facts)

    end = bench.run(world, fleet(1))

    assert len(world.measured) == 3 * 8
    assert end.error.what == "8 of 8 cell runs could not be measured"


def test_a_program_that_was_seen_at_work_only_fails_the_cells_on_which_it_does_not(bench):
    world = Fleet(measuring=lambda _site, run: None if run.position % 4 == 0 else IN_VAIN)

    end = bench.run(world, fleet(1))

    assert (len(end.results), len(world.measured)) == (2, 2 + 3 * 6)
    assert end.error.what == "6 of 8 cell runs could not be measured"


def test_a_host_on_which_every_cell_fails_is_set_aside_before_it_eats_them_all(bench):
    def measuring(site, _run):
        if site == "h2":
            raise failing(NotReady, "no GPU")

    end = bench.run(Fleet(measuring=measuring), runs=12)

    assert "3 cells in a row failed here: no GPU" in end.state.quarantined["h2"]
    assert len(end.results) == 48
    assert end.error is None


def test_a_cell_that_fails_on_every_host_is_not_blamed_on_the_hosts(bench):
    def measuring(_site, run):
        if "keys=fp8" in run.cell:
            raise failing(NotReady, "it never answered")

    end = bench.run(Fleet(measuring=measuring), runs=12)

    assert not end.state.quarantined
    assert len(end.results) == 24
    assert end.error.what == "24 of 48 cell runs could not be measured"


def test_a_host_that_can_not_be_restored_is_quarantined_by_name_and_named_at_the_end(bench):
    def leaving(site):
        if site == "h3":
            raise failing(NotRestored, "h3 is not as it was found")

    def measuring(site, run):
        if site == "h3":
            raise failing(NotReady, "no answer")

    end = bench.run(Fleet(measuring=measuring, leaving=leaving))

    assert end.error.exit_code is ExitCode.FAILED_NOT_RESTORED
    assert end.error.what == "h3 is not as it was found"
    assert dict(end.state.quarantined) == {"h3": "h3 is not as it was found"}
    assert len(end.results) == 8
    kinds = {event.kind for event in bench.folder.events()}
    assert "quarantined" in kinds


def test_a_host_that_is_no_longer_what_the_spec_says_is_set_aside(bench):
    def opening(site):
        if site == "h1":
            raise failing(DriftError, "somebody changed the unit")

    end = bench.run(Fleet(opening=opening))

    assert end.error.what == "somebody changed the unit"
    assert len(end.results) == 8
    assert "h1" in end.state.quarantined


def test_a_ctrl_c_gives_the_cells_back_and_says_how_to_go_on(bench):
    def measuring(_site, run):
        if run.position == 1:
            bench.edges.stop.ask("signal SIGINT")
        bench.edges.stop.check()

    end = bench.run(Fleet(measuring=measuring), runs=9)

    assert isinstance(end.error, Interrupted)
    assert "--resume r" in end.error.next_step
    assert not end.state.in_phase(RunPhase.TAKEN, RunPhase.FAILED)
    assert all(state.run.faults == 0 for state in end.state.runs)


@pytest.mark.parametrize("disk", [failing(StoreError, "disk full"), OSError(28, "disk full")])
def test_a_full_disk_ends_the_whole_campaign(bench, disk):
    def measuring(_site, run):
        if run.position == 2:
            raise disk

    end = bench.run(Fleet(measuring=measuring), runs=20)

    assert isinstance(end.error, StoreError)
    assert len(end.results) < 80


def test_a_bug_ends_the_campaign_loudly_with_every_site_released(bench):
    def measuring(_site, run):
        if run.position == 2:
            raise ZeroDivisionError

    matrix = asked(bench.tmp_path, runs=2)
    inventory = fleet()
    bench.queue.put(cell_runs(matrix, inventory))
    world = Fleet(measuring=measuring)
    bench.monkeypatch.setattr(campaign_worker, "held_site", world.held_site)
    sites = named_sites(inventory, "fleet")

    with pytest.raises(ZeroDivisionError):
        Campaign(bench.edges, inventory, bench.folder, matrix, bench.queue, sites).run(())

    assert not +world.held


def test_turns_are_given_in_the_order_in_which_they_were_asked_for():
    turns, got = Turns(1), []
    entered, go = threading.Event(), threading.Event()

    def hold(number):
        with turns.turn():
            got.append(number)
            entered.set()
            go.wait(DEADLINE_S)

    threads = [threading.Thread(target=hold, args=[n]) for n in range(4)]
    threads[0].start()
    entered.wait(DEADLINE_S)
    for number, thread in enumerate(threads[1:], start=1):
        thread.start()
        while len(turns._asked) < number:
            SystemClock().sleep(0.001)
    go.set()
    for thread in threads:
        thread.join()

    assert got == [0, 1, 2, 3]
