"""Whoever compares is warned before of arms that are alike, and of hosts that hold a change."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fleetctl.errors import LeaseHeld
from fleetctl.store.run_folder import RunFolder, list_runs
from fleetctl.transaction.journal import State
from fleetctl.transaction.snapshot import HeldTransaction, Status
from fleetctl.workflow.as_found import (
    arms_alike,
    kept_changes,
    notes_of,
    say_what_is_left,
    warnings_of,
)
from fleetctl.workflow.fleet_run import begin
from fleetctl.workflow.held import refuse_restoring, refuse_undecided
from fleetctl.workflow.prepare import HostPlan
from tests.workflow.searches import JOB


def planned(name, **wanted):
    return HostPlan(SimpleNamespace(name=name), None, {}, {}, wanted)


def holding(*states):
    return Status(
        (), tuple(HeldTransaction("t", f"r-{s}", "a", "p", "u", s, 0.0, (), ()) for s in states)
    )


@pytest.mark.parametrize(
    ("control", "treatment", "alike"),
    [
        ({}, {}, True),
        ({"/x": "1"}, {"/x": "1"}, True),
        ({"/x": "1"}, {"/x": "2"}, False),
        ({}, {"/x": "2"}, False),
    ],
)
def test_arms_that_leave_the_same_bytes_are_named_with_their_hosts(control, treatment, alike):
    hosts = [
        planned("a", control=control, treatment=treatment),
        planned("b", one={}, two={"/": ""}),
    ]

    told = [*arms_alike(hosts)]

    assert [line.split(":")[0] for line in told] == [
        "both arms run the same files and flags on a"
    ] * alike


@pytest.mark.parametrize("state", [state.value for state in State])
def test_what_stays_after_a_run_belongs_to_a_host_as_found(state):
    told = [*kept_changes({"h": holding(state, state)})]

    assert len(told) == (state in {"committed", "conflict"})
    assert all(f"`fleetctl rollback r-{state} --host h`" in line for line in told)


def site_of(**states):
    """Return a planned site whose hosts hold changes in these states."""
    hosts = [
        HostPlan(
            SimpleNamespace(name=name, host=SimpleNamespace(unit="u")),
            SimpleNamespace(observed=SimpleNamespace(status=holding(*held))),
            {},
            {},
            {"control": {}, "treatment": {"/x": "1"}},
        )
        for name, held in states.items()
    ]
    return SimpleNamespace(hosts=hosts, to_json=dict)


@pytest.fixture
def edges(tmp_path):
    said = []
    talk = SimpleNamespace(say=said.append, said=said)
    clock = SimpleNamespace(now_s=lambda: 0.0)
    return SimpleNamespace(
        clock=clock, talk=talk, holder="ann@desk", runs=tmp_path, salt=lambda: "salt"
    )


def test_a_plan_names_what_every_host_holds():
    told = warnings_of([site_of(a=["committed"], b=["committed"])])

    assert [line.split()[0] for line in told] == ["a", "b"]


def test_what_a_run_stands_on_is_said_and_recorded_once_however_often_its_hosts_are_visited(
    edges, tmp_path
):
    folder = RunFolder.create(tmp_path, "r", {})
    plans = [site_of(a=["committed"], b=["applied"])]

    say_what_is_left(edges, folder, plans)
    say_what_is_left(edges, folder, plans)

    assert edges.talk.said == [f"warning: {line}" for line in warnings_of(plans)]
    assert notes_of(folder) == (
        "a as found held the kept change of run r-committed: whatever ran there ran on top of it",
    )


def test_a_run_warns_when_it_begins_and_before_a_host_is_touched(edges, monkeypatch):
    monkeypatch.setattr(HostPlan, "facts_json", lambda _: {})
    folder = begin(edges, JOB, [site_of(a=["committed"])])

    assert edges.talk.said[1].startswith("warning: a as found holds the kept change of run r-comm")
    assert [event.kind for event in folder.events()] == ["found"]


@pytest.mark.parametrize("state", ["conflict", "damaged"])
def test_a_host_on_which_something_waits_for_a_decision_is_refused_and_leaves_no_run(
    edges, tmp_path, state
):
    with pytest.raises(LeaseHeld, match=f"a holds a change of run r-{state} by a") as refused:
        begin(edges, JOB, [site_of(a=[state])])

    assert f"`fleetctl rollback r-{state} --list --host a`" in refused.value.next_step
    assert list_runs(tmp_path) == []


@pytest.mark.parametrize("state", ["applying", "applied", "reverting"])
def test_a_host_that_is_just_being_brought_back_is_named_as_that(state):
    unit, other = (SimpleNamespace(name="a", host=SimpleNamespace(unit=name)) for name in "uv")

    with pytest.raises(LeaseHeld, match="a is being restored") as refused:
        refuse_restoring(unit, holding(state))

    assert "`fleetctl status --host a`" in refused.value.next_step
    refuse_restoring(unit, holding("committed", "conflict", "damaged", "reverted"))
    refuse_restoring(other, holding(state))


def test_what_waits_for_a_decision_on_another_unit_is_nobody_s_matter_here():
    other = SimpleNamespace(name="a", host=SimpleNamespace(unit="v"))

    refuse_undecided(other, holding("conflict", "damaged"))
