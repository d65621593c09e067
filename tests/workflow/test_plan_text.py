"""A plan as people read it: warnings first, equal diffs once, no line twice."""

from __future__ import annotations

from types import SimpleNamespace

from fleetctl.plan.jit import NO_CACHES, ArmCaches
from fleetctl.plan.planner import Change, Plan
from fleetctl.transaction.step import LendDirectory, RestartUnit
from fleetctl.workflow.plan_text import render
from fleetctl.workflow.prepare import HostPlan, SitePlan

UNREAD = "nothing in /srv/x reads SGLANG_DSV4_GE_DIF"


def host(name: str, *, after: bytes = b"export A=1\n", notes=(), warnings=(), arms=("control",)):
    change = Change("/serve.sh", b"export A=0\n", after, "A edited in place (line 1)")
    plans = {arm: Plan(name, (RestartUnit("x.service"),), (change,), notes=notes) for arm in arms}
    reached = SimpleNamespace(name=name)
    return SimpleNamespace(reached=reached, plans=plans, caches={}, warnings=warnings)


def told(*hosts) -> list[str]:
    """Return the plan of sites that have one host each."""
    return render([SimpleNamespace(hosts=[each]) for each in hosts])


def test_what_an_arm_changes_alike_on_several_hosts_is_shown_once():
    lines = told(host("lab-1"), host("lab-2"), host("lab-3", after=b"export A=2\n"))

    heads = [line for line in lines if line.startswith("==")]
    assert heads == ["== control on lab-1; the same on lab-2", "== control on lab-3"]
    assert lines.count("+export A=1") == lines.count("+export A=2") == 1


def test_arms_come_in_their_order_and_each_has_its_own_diff():
    lines = told(host("lab-1", arms=("control", "treatment")), host("lab-2", arms=("treatment",)))

    heads = [line for line in lines if line.startswith("==")]
    assert heads == ["== control on lab-1", "== treatment on lab-1; the same on lab-2"]


def test_warnings_come_first_each_once_with_its_hosts():
    lines = told(
        host("lab-1", notes=(UNREAD,), warnings=("KillMode=process: …",)),
        host("lab-2", notes=(UNREAD,)),
    )

    assert lines[1:3] == [
        f"warning: control: {UNREAD} (on lab-1, lab-2)",
        "note: KillMode=process: … (on lab-1)",
    ]
    assert "\n".join(lines).count(UNREAD) == 1


def test_an_arm_that_changes_nothing_says_so_without_a_plural_in_brackets():
    nothing = host("lab-1")
    nothing.plans["control"] = Plan("lab-1", (), ())

    assert told(nothing) == ["", "== control on lab-1", "nothing to change"]
    assert "(s)" not in "\n".join(told(host("lab-1")))


def test_an_arm_as_found_shows_no_directory_that_is_lent_for_the_other_arm_s_kernels():
    both = host("lab-1")
    steps = (LendDirectory("/tmp/own"), RestartUnit("x.service"))
    both.plans = {arm: Plan("lab-1", steps, ()) for arm in ("control", "treatment")}
    both.caches = {"control": NO_CACHES, "treatment": ArmCaches({"CACHE": "/tmp/own"}, {})}

    assert told(both) == [
        "",
        "== control on lab-1",
        "files that change: 0; steps: 1",
        "",
        "  restart x.service",
        "",
        "== treatment on lab-1",
        "files that change: 0; steps: 2",
        "",
        "  lend 1 directory to the service for the whole run",
        "  restart x.service",
        "  compiled kernels: CACHE /tmp/own",
    ]


def test_the_json_of_a_plan_counts_the_steps_that_people_are_shown():
    steps = (LendDirectory("/tmp/own"), RestartUnit("x.service"))
    plans = {arm: Plan("lab-1", steps, ()) for arm in ("control", "treatment")}
    caches = {"control": NO_CACHES, "treatment": ArmCaches({"CACHE": "/tmp/own"}, {})}
    unit = SimpleNamespace(properties={})
    view = SimpleNamespace(code=SimpleNamespace(processes=()), unit=unit)
    planned = HostPlan(SimpleNamespace(name="lab-1"), view, {}, plans, {}, caches)

    (found,) = SitePlan(SimpleNamespace(name="lab-1"), {}, (planned,)).to_json()["hosts"]

    shown = told(planned)
    for arm, steps_of_arm in (("control", 1), ("treatment", 2)):
        assert len(found["arms"][arm]["steps"]) == steps_of_arm
        assert found["arms"][arm]["diff"][0] == f"files that change: 0; steps: {steps_of_arm}"
        assert found["arms"][arm]["diff"][0] in shown
    assert found["lent_for_the_whole_run"] == ["/tmp/own"]
