"""A plan warns of comparisons that would compare nothing, and of hosts that are not themselves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fleetctl.cli.plan_warnings import arms_alike, kept_changes, warnings_of
from fleetctl.transaction.journal import State
from fleetctl.transaction.snapshot import HeldTransaction, Status
from fleetctl.workflow.prepare import HostPlan


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


def test_every_host_is_asked_what_it_holds():
    hosts = [
        SimpleNamespace(name=name, agent=SimpleNamespace(status=lambda: holding("committed")))
        for name in ("a", "b")
    ]

    told = warnings_of([], hosts)

    assert [line.split()[0] for line in told] == ["a", "b"]
