"""Workers and databases that die: every cell is counted exactly once, whoever measured it."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable

import pytest

from fleetctl.store.campaign import RunPhase
from tests.contracts.cell_queue import cell_run, result_of
from tests.queue.machines import Machine, Machines
from tests.queue.proxy import Proxy

BLOCK = "gpu=h200"
LOST_AFTER_S = 3.0


@pytest.fixture(scope="module")
def hasty(url):
    """Machines that are declared lost after three seconds of silence."""
    with Machines(url, lost_after_s=LOST_AFTER_S) as made:
        yield made


@pytest.fixture
def name():
    return uuid.uuid4().hex[:8]


@pytest.fixture
def two(hasty):
    yield hasty.start("one", "two")
    hasty.release()


def sooner_or_later(asked: Callable[[], object], deadline_s: float = 90.0):
    end_s = time.monotonic() + deadline_s
    while not (found := asked()):
        assert time.monotonic() < end_s, "it did not happen"
        time.sleep(0.05)
    return found


def take(queue, site):
    return queue.take(site, block=BLOCK, worker="w")


def test_a_killed_worker_s_cell_is_measured_by_another(two, name):
    one, other = (machine.queue(name) for machine in two)
    one.put([cell_run(0), cell_run(1)])
    done, lost = take(one, "s1"), take(one, "s1")
    assert one.done(done, result_of(done))

    two[0].kill()
    again = sooner_or_later(lambda: take(other, "s1"))

    assert (again.id, again.faults) == (lost.id, 1)
    assert "was silent" in next(s.why for s in other.state().runs if s.run.id == lost.id)
    assert other.done(again, result_of(again, "s1"))
    assert Counter(result.id for result in other.results()) == {lost.id: 1, done.id: 1}


def test_a_frozen_worker_s_late_result_is_refused_and_it_works_on(two, name):
    one, other = (machine.queue(name) for machine in two)
    one.put([cell_run(0)])
    lost = take(one, "s1")

    two[0].freeze()
    again = sooner_or_later(lambda: take(other, "s2"))
    two[0].thaw()

    assert not one.done(lost, result_of(lost, "late"))
    assert other.done(again, result_of(again, "s2"))
    assert [result.site for result in one.results()] == ["s2"]
    one.put([cell_run(1)])
    more = sooner_or_later(lambda: take(one, "s1"))
    assert one.done(more, result_of(more))


def test_of_three_workers_one_killed_and_one_away_every_cell_is_counted_once(hasty, two, name):
    """The dead one had ended a cell and held another; the one that was away comes back too late."""
    machines = [*two, *hasty.start("three")]
    killed, away, left = (machine.queue(name) for machine in machines)
    runs = [cell_run(number) for number in range(7)]
    left.put(runs)
    measured = Counter()
    counted = Counter()

    def measure(queue, run, site):
        measured[run.id] += 1
        counted[run.id] += queue.done(run, result_of(run, site))

    measure(killed, take(killed, "s1"), "s1")
    held = {"s1": take(killed, "s1"), "s2": take(away, "s2"), "s3": take(left, "s3")}
    machines[1].freeze()
    machines[0].kill()
    measure(left, held["s3"], "s3")
    sooner_or_later(lambda: not left.state().in_phase(RunPhase.TAKEN))
    left.put(runs)  # a controller that resumes puts all of its runs again
    machines[1].thaw()
    measure(away, held["s2"], "s2")
    while run := take(left, "s3"):
        measure(left, run, "s3")

    assert counted == Counter(run.id for run in runs)
    assert Counter(result.id for result in left.results()) == counted
    assert {result.digest for result in left.results()} == {run.digest for run in runs}
    twice = {run_id for run_id, times in measured.items() if times > 1}
    assert twice == {held["s2"].id}
    faults = {one.run.id: one.run.faults for one in left.state().runs}
    assert {run_id for run_id, number in faults.items() if number} == {
        held[s].id for s in ("s1", "s2")
    }


def test_a_worker_declared_lost_may_take_the_very_same_cell_again(two, name):
    one = two[0].queue(name)
    one.put([cell_run(0)])
    lost = take(one, "s1")

    two[1].call("", "declare_lost", two[0].id)
    again = take(one, "s1")

    assert (again.id, again.attempt) == (lost.id, lost.attempt + 1)
    assert not one.done(lost, result_of(lost))
    assert one.done(again, result_of(again))


def test_a_worker_that_dies_right_after_it_was_declared_lost_is_missed_again(two, name):
    one, other = (machine.queue(name) for machine in two)
    one.put([cell_run(0)])
    two[1].call("", "declare_lost", two[0].id)

    lost = take(one, "s1")
    two[0].kill()

    assert sooner_or_later(lambda: take(other, "s1")).id == lost.id


def test_a_worker_is_declared_lost_once_however_many_say_so(two, name):
    one, other = (machine.queue(name) for machine in two)
    one.put([cell_run(0)])
    take(one, "s1")

    given_back = [two[1].call("", "declare_lost", two[0].id) for _ in range(2)]

    assert given_back == [1, 0]
    assert take(other, "s2").faults == 1


def test_a_site_on_which_another_worker_measures_gets_nothing(two, name):
    one, other = (machine.queue(name) for machine in two)
    one.put([cell_run(0), cell_run(1)])
    first = take(one, "s1")

    assert take(other, "s1") is None
    assert take(other, "s2").position == 1
    assert one.done(first, result_of(first))


def test_a_worker_whose_network_is_cut_loses_its_cell_and_comes_back(server, url, two, name):
    with Proxy(server.port) as network:
        behind = url.replace(f":{server.port}/", f":{network.port}/")
        away = Machine(behind, "away", LOST_AFTER_S)
        try:
            away.wait_ready()
            queue, other = away.queue(name), two[0].queue(name)
            queue.put([cell_run(0)])
            lost = take(queue, "s1")
            network.cut()
            late = threading.Thread(target=lambda: said.append(queue.done(lost, result_of(lost))))
            said: list[bool] = []
            late.start()
            again = sooner_or_later(lambda: take(other, "s2"))
            assert other.done(again, result_of(again, "s2"))
            network.heal()
            late.join(60)

            assert said == [False]
            assert [result.site for result in queue.results()] == ["s2"]
        finally:
            away.close()


def test_a_database_that_restarts_in_the_middle_costs_no_result(server, two, name):
    queues = [machine.queue(name) for machine in two]
    queues[0].put(cell_run(number) for number in range(12))
    counted: list[str] = []

    def work(index: int) -> None:
        while not queues[index].state().is_over:
            run = take(queues[index], f"s{index}")
            if run is not None and queues[index].done(run, result_of(run)):
                counted.append(run.id)

    threads = [threading.Thread(target=work, args=[index]) for index in range(2)]
    for thread in threads:
        thread.start()
    sooner_or_later(lambda: len(counted) > 2)
    server.stop()
    server.start()
    for thread in threads:
        thread.join(90)

    assert len(queues[0].results()) == 12
    assert max(Counter(counted).values()) == 1
    assert {state.phase for state in queues[0].state().runs} == {RunPhase.DONE}


def test_failed_cells_get_another_chance_and_nothing_of_the_first_is_left(two, name):
    queue = two[0].queue(name)
    queue.put([cell_run(0), cell_run(1)])
    failed = take(queue, "s1")
    assert queue.failed(failed, "not ready")
    queue.quarantine("s1", "away")

    queue.begin_again([cell_run(0).id])

    assert [state.run.position for state in queue.state().runs] == [0]
    again = take(queue, "s1")
    assert (again.id, again.faults) == (failed.id, 0)
    assert queue.done(again, result_of(again))
    assert queue.results() == (result_of(again),)
