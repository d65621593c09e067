"""Facts about how the data came to be, and the checks that can void a verdict.

Imports nothing heavy: the checks that need a distribution are in `checks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fleetctl.analysis.counts import ArmCounts
from fleetctl.analysis.design import is_blocked
from fleetctl.analysis.effective import Difference, Kind

MOST_INFRA = 0.05
MOST_EXPOSURE_DIFFERENCE = 0.10
MOST_CLIENT_LAG_MS = 100.0
LEAST_CONCURRENCY = 0.95
# 11 rounds are exactly 10 % more than 10, but 11 / 10 - 1 is a little more than 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Exposure:
    """How much of the trigger an arm was exposed to; None where not measured.

    Attributes:
        concurrency: requests in flight, on average over the trials.
        tokens: tokens produced per session.
        rounds: rounds finished per session.
        in_flight_s: seconds in flight per session.
        batch: requests that the server itself ran while it was busy.
    """

    concurrency: float | None = None
    tokens: float | None = None
    rounds: float | None = None
    in_flight_s: float | None = None
    batch: float | None = None


@dataclass(frozen=True)
class OtherFailures:
    """Sessions of an arm that were not corrupt and yet did not end as asked.

    Attributes:
        counts: of each run. Corrupt sessions are no part of its `sessions`: they ended before they
            could fail otherwise.
        classes: the same sessions by outcome class.
    """

    counts: ArmCounts
    classes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ArmFacts:
    """How the runs of one arm went; None for what nobody looked at.

    Attributes:
        unproven: what could not be proven to run as asked.
        disturbances: unit restarts, out-of-memory kills, Xid errors during a trial.
        missed_triggers: declared triggers that the load never reached.
        exposure: what the arm was exposed to.
        planned_sessions: sessions the plan had for the runs that were made.
        client_lag_p99_ms: 99th percentile of the client's event-loop lag.
        achieved_concurrency: share of the wanted concurrency that was reached.
        foreign_load: by what the server said that somebody else asked it, too.
        other_failures: sessions that were not corrupt and yet did not end as asked.
    """

    unproven: tuple[str, ...] | None = None
    disturbances: tuple[str, ...] | None = None
    missed_triggers: tuple[str, ...] | None = None
    exposure: Exposure = Exposure()
    planned_sessions: int | None = None
    client_lag_p99_ms: float | None = None
    achieved_concurrency: float | None = None
    foreign_load: tuple[str, ...] | None = None
    other_failures: OtherFailures | None = None


@dataclass(frozen=True)
class GuardFacts:
    """Everything beside the counts that decides whether they may be compared.

    Attributes:
        control: how the control went.
        treatment: how the treatment went.
        differences: what differs between the arms; None where it was not read back.
        observers: observers that were on in both arms.
        perturbing: observers that are known to move the rate.
        historical_control: the control is from another day, host, driver or image.
        orders: the executed order on each host, such as ABBA; empty where unknown.
        order_deviation: how it differs from the planned one; empty where it does not, None where
            nobody compared.
        given_up_runs: planned runs per arm that will not be made any more.
        forced: guards that the user overruled: "confounded", "blocks".
    """

    control: ArmFacts = ArmFacts()
    treatment: ArmFacts = ArmFacts()
    differences: tuple[Difference, ...] | None = None
    observers: tuple[str, ...] = ()
    perturbing: tuple[str, ...] = ()
    historical_control: bool = False
    orders: tuple[str, ...] = ()
    order_deviation: str | None = None
    given_up_runs: int = 0
    forced: frozenset[str] = field(default_factory=frozenset)

    @property
    def sole_observer(self) -> str | None:
        """The observer that is the only difference, and so the factor; None where it is not."""
        found = self.differences or ()
        return found[0].name if [d.kind for d in found] == [Kind.OBSERVER] else None


@dataclass(frozen=True)
class Check:
    """One guard, with its number.

    Attributes:
        name: the reason code when it fails.
        passed: None where it could not be checked.
        voids: whether failing makes the verdict invalid.
        value: what was measured.
        limit: what was allowed.
        unit: "share", "p", "ms", "ratio", "rate" or "" (then `facts` tell).
        facts: what exactly was found.
    """

    name: str
    passed: bool | None
    voids: bool = True
    value: float | None = None
    limit: float | None = None
    unit: str = ""
    facts: tuple[str, ...] = ()

    @property
    def is_void(self) -> bool:
        """Whether this check alone forbids a conclusion."""
        return self.voids and self.passed is False


def at_most(name: str, value: float, limit: float, unit: str) -> Check:
    """Return the check that a number does not exceed its limit."""
    passed = value <= limit or math.isclose(value, limit, rel_tol=_ROUNDING)
    return Check(name, passed=passed, value=value, limit=limit, unit=unit)


def at_least(name: str, value: float, limit: float, unit: str) -> Check:
    """Return the check that a number reaches its limit."""
    passed = value >= limit or math.isclose(value, limit, rel_tol=_ROUNDING)
    return Check(name, passed=passed, value=value, limit=limit, unit=unit)


def fact_checks(
    control: ArmCounts, treatment: ArmCounts, facts: GuardFacts, *, factorial: bool = False
) -> list[Check]:
    """Return the checks that compare facts with limits, in the order in which they are told."""
    return [
        _empty_arm(control, treatment),
        _told("not_proven", _labelled(facts, "unproven"), _mixed(facts)),
        _told("disturbed", _labelled(facts, "disturbances")),
        _confounded(facts, factorial=factorial),
        _perturbing(facts),
        _order_deviates(facts),
        _blocked_order(facts),
        _told("not_exercised", _labelled(facts, "missed_triggers")),
        *_infra(control, treatment),
        *_exposure(control, treatment, facts),
        *_client(facts),
        # it moves the rates of both arms; whether it did more to one, the exposure tells
        replace(_told("foreign_load", _labelled(facts, "foreign_load")), voids=False),
    ]


def _told(name: str, found: tuple[str, ...] | None, more: tuple[str, ...] = ()) -> Check:
    if found is None and not more:
        return Check(name, passed=None)
    facts = (found or ()) + more
    return Check(name, passed=not facts, facts=facts)


def _labelled(facts: GuardFacts, attribute: str) -> tuple[str, ...] | None:
    """Return an attribute of both arms, each fact with its arm; None where one is unknown."""
    told = {"control": getattr(facts.control, attribute)}
    told["treatment"] = getattr(facts.treatment, attribute)
    if None in told.values():
        return None
    return tuple(f"{name}: {fact}" for name, found in told.items() for fact in found)


def _mixed(facts: GuardFacts) -> tuple[str, ...]:
    return tuple(
        f"{d.name} differs between processes: control {d.control}, treatment {d.treatment}"
        for d in facts.differences or ()
        if d.kind is Kind.MIXED
    )


def _empty_arm(control: ArmCounts, treatment: ArmCounts) -> Check:
    return _told(
        "empty_arm", tuple(f"{a.name}: no session" for a in (control, treatment) if not a.sessions)
    )


def _confounded(facts: GuardFacts, *, factorial: bool) -> Check:
    if facts.differences is None:
        return Check("confounded", passed=None)
    changed = [d for d in facts.differences if d.kind is not Kind.MIXED]
    told = tuple(f"{d.kind} {d.name}: {d.control} -> {d.treatment}" for d in changed)
    return Check(
        "confounded",
        passed=factorial or len(changed) <= 1,
        voids="confounded" not in facts.forced,
        facts=told,
    )


def _perturbing(facts: GuardFacts) -> Check:
    if not facts.observers:
        return Check("perturbing_observer", passed=None)
    on = tuple(name for name in facts.observers if name in facts.perturbing)
    return _told("perturbing_observer", on)


def _order_deviates(facts: GuardFacts) -> Check:
    deviation = facts.order_deviation
    return _told("order_deviates", None if deviation is None else (deviation,) * bool(deviation))


def _blocked_order(facts: GuardFacts) -> Check:
    if not facts.orders:
        return Check("blocked_order", passed=None)
    blocked = tuple(order for order in facts.orders if is_blocked(order))
    return Check(
        "blocked_order", passed=not blocked, voids="blocks" not in facts.forced, facts=blocked
    )


def _infra(control: ArmCounts, treatment: ArmCounts) -> list[Check]:
    shares = [_lost_share(arm) for arm in (control, treatment)]
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return [Check("infra", passed=None), Check("infra_difference", passed=None)]
    return [
        at_most("infra", max(known), MOST_INFRA, "share"),
        at_most("infra_difference", max(known) - min(known), MOST_INFRA, "share"),
    ]


def _lost_share(arm: ArmCounts) -> float | None:
    """Return the share of sessions lost to the infrastructure; None where nobody counted them."""
    if arm.infra is None:
        return None
    asked_for = arm.sessions + arm.infra
    return arm.infra / asked_for if asked_for else 0.0


def _exposure(control: ArmCounts, treatment: ArmCounts, facts: GuardFacts) -> list[Check]:
    """Compare what the arms were exposed to.

    An arm that was exposed less looks cleaner, which voids the comparison. The dirtier arm may
    have been exposed less without harm: sessions that go wrong end early. Longer time in flight
    is no smaller exposure, but it moves a race, so it is told.
    """
    lead = (treatment.rate or 0.0) - (control.rate or 0.0)
    checks = []
    for name in ("concurrency", "tokens", "rounds", "batch", "in_flight_s"):
        a, b = getattr(facts.control.exposure, name), getattr(facts.treatment.exposure, name)
        harmless = name == "in_flight_s" or (lead > 0 and (b or 0) < (a or 0))
        harmless = harmless or (lead < 0 and (a or 0) < (b or 0))
        checks.append(replace(_ratio_check(f"exposure_{name}", a, b), voids=not harmless))
    return checks


def _ratio_check(name: str, a: float | None, b: float | None) -> Check:
    if a is None or b is None:
        return Check(name, passed=None)
    low, high = sorted((a, b))
    apart = high / low - 1 if low > 0 else float(high > 0)
    more = "treatment" if b > a else "control"
    unit = " s" if name.endswith("_s") else ""
    told = f"the {more} had {apart:.0%} more, {high:.3g}{unit} against {low:.3g}{unit}"
    facts = (told,) if low > 0 else (f"the {more} had {high:.3g}{unit}, the other arm none",)
    return replace(
        at_most(name, apart, MOST_EXPOSURE_DIFFERENCE, "ratio"), facts=facts if high > low else ()
    )


def _client(facts: GuardFacts) -> list[Check]:
    arms = (facts.control, facts.treatment)
    lags = [arm.client_lag_p99_ms for arm in arms if arm.client_lag_p99_ms is not None]
    reached = [arm.achieved_concurrency for arm in arms if arm.achieved_concurrency is not None]
    checks = [Check("client_lag", passed=None), Check("concurrency", passed=None)]
    if lags:
        checks[0] = at_most("client_lag", max(lags), MOST_CLIENT_LAG_MS, "ms")
    if reached:
        checks[1] = at_least("concurrency", min(reached), LEAST_CONCURRENCY, "share")
    return checks
