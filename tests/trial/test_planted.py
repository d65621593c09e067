"""Planted values are unique, opaque and lead back to their owner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.trial.planted import (
    MAX_SESSIONS,
    MAX_SLOTS,
    VALUE_PATTERN,
    Owner,
    owner_of,
    planted_value,
)

seeds = st.integers(0, 2**63)
runs = st.integers(0, 1000)
sessions = st.integers(0, MAX_SESSIONS - 1)
slots = st.integers(0, MAX_SLOTS - 1)


@given(seeds, runs, sessions, slots)
def test_a_value_leads_back_to_its_owner(seed, run, session, slot):
    value = planted_value(seed, run, session, slot)
    assert VALUE_PATTERN.fullmatch(value)
    assert owner_of(value, seed, run) == Owner(run, session, slot)


def test_no_two_sessions_share_a_value():
    values = {planted_value(3, 0, session, slot) for session in range(2000) for slot in range(4)}
    assert len(values) == 8000


def test_another_run_or_seed_has_other_values():
    values = {planted_value(seed, run, 0, 0) for seed in range(20) for run in range(20)}
    assert len(values) > 390


@given(seeds, st.from_regex(VALUE_PATTERN, fullmatch=True))
def test_every_well_shaped_value_can_be_traced(seed, value):
    owner = owner_of(value, seed, 0)
    assert owner is not None
    if owner.session < MAX_SESSIONS:
        assert planted_value(seed, 0, owner.session, owner.slot) == value


@pytest.mark.parametrize("text", ["", "ZK-441-Q", "zk-4417-q", "ZK-4417-QQ", "AZK-4417-Q"])
def test_other_shapes_have_no_owner(text):
    assert owner_of(text, 1, 0) is None
    assert VALUE_PATTERN.fullmatch(text) is None


def test_a_value_is_found_inside_a_sentence_but_not_inside_a_longer_word():
    assert VALUE_PATTERN.findall("order ZK-4417-Q, not XZK-4417-Q or ZK-4417-Q-2") == ["ZK-4417-Q"]
