"""Rows, pages and the queue stay consistent whatever comes and goes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from payload.engine.config import EngineConfig
from payload.engine.program import Program
from payload.engine.scheduler import PagePool, Scheduler
from payload.engine.sequence import Sequence

CONFIG = EngineConfig(max_batch=4, context_tokens=1024, cache_pages=12)


def sequence(number, tokens=100):
    return Sequence(number, tuple(range(tokens)), Program((1,), (1,), (None,)), 500)


def test_arrivals_fill_rows_in_order_and_the_rest_wait():
    scheduler = Scheduler(CONFIG)
    for number in range(6):
        scheduler.add(sequence(number, tokens=10))

    admitted = scheduler.admit()

    assert [one.number for one in admitted] == [0, 1, 2, 3]
    assert [one.number for one in scheduler.waiting] == [4, 5]


def test_the_first_that_does_not_fit_holds_back_those_behind_it():
    scheduler = Scheduler(CONFIG)
    for number, tokens in enumerate((600, 600, 10)):
        scheduler.add(sequence(number, tokens))

    assert [one.number for one in scheduler.admit()] == [0]
    assert [one.number for one in scheduler.waiting] == [1, 2]


def test_the_longest_context_is_the_first_row_and_keeps_its_pages():
    scheduler = Scheduler(replace(CONFIG, cache_pages=20))
    for number, tokens in enumerate((70, 200, 130, 200)):
        scheduler.add(sequence(number, tokens))
    scheduler.admit()
    assert [one.number for one in scheduler.running] == [1, 3, 2, 0]

    scheduler.remove(scheduler.running[1])

    assert [one.number for one in scheduler.running] == [1, 2, 0]
    for row, one in enumerate(scheduler.running):
        assert scheduler.table()[row, : len(one.pages)].tolist() == one.pages


def test_the_youngest_is_evicted_to_the_head_of_the_queue():
    scheduler = Scheduler(CONFIG)
    for number, tokens in enumerate((300, 200, 120)):  # 5 + 4 + 2 pages: all there are
        scheduler.add(sequence(number, tokens))
    scheduler.admit()
    assert scheduler.free_pages == 0
    scheduler.running[0].said = [0] * 70

    scheduler.grow()

    assert [one.number for one in scheduler.running] == [0, 1]
    assert [one.number for one in scheduler.waiting] == [2]
    assert len(scheduler.running[0].pages) == 6


def test_a_pool_never_hands_out_the_padding_page():
    pool = PagePool(3)

    assert sorted(pool.take(2)) == [1, 2]
    assert pool.take(1) is None


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 500)), max_size=50))
def test_no_page_has_two_owners_and_none_is_lost(actions):
    scheduler = Scheduler(CONFIG)
    for number, (action, size) in enumerate(actions):
        if action == 0:
            scheduler.add(sequence(number, size))
        elif action == 1 and scheduler.running:
            scheduler.remove(scheduler.running[size % len(scheduler.running)])
        elif action == 2 and scheduler.running:
            scheduler.running[size % len(scheduler.running)].said += [0] * 33
        scheduler.grow()
        scheduler.admit()
        owned = [page for one in scheduler.running for page in one.pages]
        assert len(set(owned)) == len(owned)
        assert 0 not in owned
        assert len(owned) + scheduler.free_pages == CONFIG.cache_pages - 1
        for row, one in enumerate(scheduler.running):
            assert len(one.pages) >= one.pages_needed()
            assert scheduler.table()[row, : len(one.pages)].tolist() == one.pages
        assert all(one.pages == [] for one in scheduler.waiting)


@pytest.mark.parametrize(
    ("said", "length", "position", "cursor"),
    [(0, 102, 101, 100), (1, 102, 101, 101), (5, 106, 105, 105)],
)
def test_the_next_steps_row(said, length, position, cursor):
    one = sequence(0)
    one.said = [7] * said
    one.pages = [3, 9]

    row = one.row(first_token=5)

    assert (row.length, row.position, row.cursor) == (length, position, cursor)
    assert row.token == (7 if said else 5)
    assert row.slot == 9 * 64 + position - 64
    assert len(one.context) == row.position
