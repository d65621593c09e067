"""What every `CellQueue` promises. A subclass gives it a `campaign`.

`campaign` opens the same queue again and again (`open(worker)`), says that a worker has died
(`bury(worker)`: whatever the queue does to give its runs back has then been done), and knows no
other state than the queue's own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

import pytest

from fleetctl.store.campaign import CellQueue, CellResult, CellRun, Place, RunPhase


class Campaign(Protocol):
    """One queue, as many machines see it."""

    def open(self, worker: str) -> CellQueue: ...

    def bury(self, worker: str) -> None: ...


def cell_run(number: int, *, block: str = "gpu=h200", arm: str = "a") -> CellRun:
    digest = f"{number:064x}"
    return CellRun(f"{digest[-16:]}.0", f"cell={number}", arm, digest, 0, block, number)


def result_of(run: CellRun, site: str = "s") -> CellResult:
    facts = {"corrupted": 1, "counted": 40, "line": "1/40 \u2713"}
    return CellResult(run.id, run.digest, site, "boot-1", f"trials/{run.attempt}", facts)


def taken(queue: CellQueue, site: str = "s", *, block: str = "gpu=h200", **more: Any) -> CellRun:
    run = queue.take(site, block=block, worker="w", **more)
    assert run is not None
    return run


class CellQueueContract:
    """Subclass it with a fixture `campaign`."""

    @pytest.fixture
    def queue(self, campaign: Campaign) -> CellQueue:
        return campaign.open("w")

    def put(self, queue: CellQueue, runs: Iterable[CellRun]) -> None:
        queue.put(tuple(runs))

    def test_runs_are_given_in_their_order_each_once(self, queue):
        queue.put([cell_run(2), cell_run(0), cell_run(1)])

        assert [taken(queue).position for _ in range(3)] == [0, 1, 2]
        assert queue.take("s", block="gpu=h200", worker="w") is None

    def test_a_site_gets_runs_of_its_own_block_only(self, queue):
        queue.put([cell_run(0, block="gpu=h100"), cell_run(1)])

        assert taken(queue).position == 1
        assert queue.take("s", block="gpu=h200", worker="w") is None

    def test_a_site_may_prefer_the_arm_that_stands_on_it(self, queue):
        queue.put([cell_run(0), cell_run(1, arm="b"), cell_run(2)])

        assert [taken(queue, prefers="b").position for _ in range(3)] == [1, 0, 2]

    def test_a_site_takes_the_runs_at_home_on_it_first_and_then_the_others(self, queue):
        queue.put([cell_run(0), cell_run(1), cell_run(2), cell_run(3), cell_run(4, arm="b")])
        second = Place(1, among=2)

        assert taken(queue, place=second).position == 1
        assert taken(queue, place=second, prefers="b").position == 4
        assert [taken(queue, place=second).position for _ in range(3)] == [3, 0, 2]

    def test_a_result_comes_back_as_it_was_given(self, queue):
        queue.put([cell_run(1), cell_run(0)])
        first, second = taken(queue), taken(queue)

        assert queue.done(second, result_of(second))
        assert queue.done(first, result_of(first))

        assert queue.results() == (result_of(first), result_of(second))
        assert queue.state().is_over

    def test_a_result_is_counted_once(self, queue):
        queue.put([cell_run(0)])
        run = taken(queue)

        assert queue.done(run, result_of(run))
        assert not queue.done(run, result_of(run, "elsewhere"))
        assert not queue.failed(run, "late")
        assert not queue.give_back(run, "late", fault=True)
        assert queue.results() == (result_of(run),)

    def test_a_run_that_is_given_back_is_taken_again_and_its_first_attempt_counts_no_more(
        self, queue
    ):
        queue.put([cell_run(0)])
        first = taken(queue, "s1")

        assert queue.give_back(first, "the host went away", fault=True)
        second = taken(queue, "s2")

        assert (second.id, second.faults) == (first.id, 1)
        assert second.attempt > first.attempt
        assert not queue.done(first, result_of(first, "s1"))
        assert queue.done(second, result_of(second, "s2"))
        assert [result.site for result in queue.results()] == ["s2"]

    def test_a_run_without_a_fault_of_its_own_keeps_its_count_of_faults(self, queue):
        queue.put([cell_run(0)])

        queue.give_back(taken(queue), "stopped", fault=False)

        assert taken(queue).faults == 0

    def test_a_site_gets_the_run_it_gave_back_after_all_others(self, queue):
        queue.put([cell_run(0), cell_run(1)])
        queue.give_back(taken(queue, "s1"), "not ready", fault=True)

        assert taken(queue, "s1").position == 1
        assert taken(queue, "s1").position == 0

    def test_a_run_that_was_interrupted_is_dealt_as_if_nobody_had_taken_it(self, queue):
        """Else an operator's stop would move cells to other hosts, and confound them with those."""
        queue.put([cell_run(0), cell_run(1)])
        queue.give_back(taken(queue, "s1"), "stopped", fault=False)

        assert taken(queue, "s1").position == 0

    def test_a_failed_run_is_over_and_says_why(self, queue):
        queue.put([cell_run(0), cell_run(1)])
        run = taken(queue, "s1")

        assert queue.failed(run, "it never became ready")

        (state,) = queue.state().in_phase(RunPhase.FAILED)
        assert (state.run.id, state.site, state.why) == (run.id, "s1", "it never became ready")
        assert not queue.state().is_over
        assert queue.results() == ()

    def test_a_quarantined_site_gets_nothing_and_others_go_on(self, queue):
        queue.put([cell_run(0)])

        queue.quarantine("s1", "it is not as it was found")

        assert queue.take("s1", block="gpu=h200", worker="w") is None
        assert taken(queue, "s2").position == 0
        assert dict(queue.state().quarantined) == {"s1": "it is not as it was found"}

    def test_putting_runs_again_changes_nothing_of_those_that_are_known(self, queue):
        queue.put([cell_run(0), cell_run(1)])
        run = taken(queue)
        queue.done(run, result_of(run))
        other = taken(queue)

        queue.put([cell_run(0), cell_run(1), cell_run(2)])

        phases = [state.phase for state in queue.state().runs]
        assert phases == [RunPhase.DONE, RunPhase.TAKEN, RunPhase.WAITING]
        assert queue.done(other, result_of(other))

    def test_the_state_says_who_has_what(self, queue):
        queue.put([cell_run(0), cell_run(1)])
        taken(queue, "s1")

        has, waits = queue.state().runs
        assert (has.phase, has.site, has.worker) == (RunPhase.TAKEN, "s1", "w")
        assert (waits.phase, waits.site) == (RunPhase.WAITING, "")

    def test_a_dead_worker_s_run_is_measured_again_and_its_late_word_is_not_heard(self, campaign):
        first = campaign.open("dead")
        first.put([cell_run(0), cell_run(1)])
        kept = first.take("s1", block="gpu=h200", worker="dead")
        first.done(kept, result_of(kept))
        lost = first.take("s1", block="gpu=h200", worker="dead")

        campaign.bury("dead")
        after = campaign.open("alive")
        again = after.take("s2", block="gpu=h200", worker="alive")

        assert again.id == lost.id
        assert not after.done(lost, result_of(lost))
        assert after.done(again, result_of(again, "s2"))
        assert [result.id for result in after.results()] == [kept.id, again.id]

    def test_many_workers_at_once_measure_every_run_exactly_once(self, campaign):
        queues = [campaign.open(f"w{i}") for i in range(4)]
        queues[0].put(cell_run(number) for number in range(40))
        counted: list[str] = []

        def work(index: int) -> None:
            queue, worker = queues[index], f"w{index}"
            while run := queue.take(f"s{index}", block="gpu=h200", worker=worker):
                if run.position % 7 == 3 and run.faults == 0:
                    queue.give_back(run, "once more", fault=True)
                elif queue.done(run, result_of(run)):
                    counted.append(run.id)

        threads = [threading.Thread(target=work, args=[index]) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert queues[0].state().is_over
        assert max(Counter(counted).values()) == 1
        assert len(queues[0].results()) == len(counted) == 40
