"""The layers of readiness: what each asks, and what counts as passed."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from fleetctl.serving.probe import (
    NOTHING_LISTENS,
    Answer,
    Answered,
    HttpProbe,
    Unknown,
    Unreachable,
)
from fleetctl.trial.classes import OutcomeClass
from fleetctl.trial.dialogue import truth_of
from fleetctl.trial.events import Exchange, Expectation, SessionRecord, Truth
from fleetctl.trial.outcome import SessionOutcome, classify
from fleetctl.trial.reply import assemble
from fleetctl.trial.scenario import Calibration, build_scenario, first_messages, request_body
from fleetctl.trial.workload import ToolcallWorkload

REQUEST_S = 30.0  # servers hold a health check for up to 20 s
PORT_S = 2.0
_PROBE = ToolcallWorkload(sessions=1, rounds=1, context_tokens=0, max_tokens=512, stream=False)
_TEXT_TOKENS = 64


@dataclass(frozen=True)
class LayerPlan:
    """How long a layer may take and how often it is asked at most.

    Attributes:
        deadline_s: counted from when the layer before it was passed.
        poll_s: the longest pause between two questions; early on they come faster.
    """

    deadline_s: float
    poll_s: float


@dataclass(frozen=True)
class ReadyPlan:
    """What ready means for a service.

    Attributes:
        model: the name its completions must carry; empty accepts any.
        health_path: of the health endpoint.
        health_meaning: what a green answer means there, for the record.
        active: the unit is active and does not loop.
        port: something listens.
        health: the health endpoint answers 200.
        completion: a chat completion comes back, with the model's name and sound text.
        tool_call: a tool call comes back that parses and holds the planted value; None skips it.
        concurrent: so many completions at once; 0 skips it.
        concurrent_layer: how long that may take; None takes the completion's limits.
        soak_s: how long the unit must have been active without a restart.
        progress: patterns with one number in parentheses, looked for in the service's log.
        restarts_before: the unit's restart count before it was started; None takes the first
            one seen.
    """

    model: str = ""
    health_path: str = "/health"
    health_meaning: str = ""
    active: LayerPlan = LayerPlan(60.0, 1.0)
    port: LayerPlan = LayerPlan(300.0, 1.0)
    health: LayerPlan = LayerPlan(300.0, 5.0)
    completion: LayerPlan = LayerPlan(300.0, 3.0)
    tool_call: LayerPlan | None = None
    concurrent: int = 0
    concurrent_layer: LayerPlan | None = None
    soak_s: float = 1.0
    progress: tuple[str, ...] = ()
    restarts_before: int | None = 0


@dataclass(frozen=True)
class Passed:
    """A layer's question was answered as it should be."""

    note: str


@dataclass(frozen=True)
class Failed:
    """It was not; `state` is unreachable, unhealthy or unknown."""

    state: str
    why: str


Check = Callable[[HttpProbe], Passed | Failed]


@dataclass(frozen=True)
class Layer:
    """One layer of readiness.

    Attributes:
        name: as people say it.
        plan: its deadline and poll.
        check: asks once.
    """

    name: str
    plan: LayerPlan
    check: Check


def service_layers(plan: ReadyPlan) -> tuple[Layer, ...]:
    """Return the layers above the unit, in the order they must be passed."""
    layers = [
        Layer("port", plan.port, check_port),
        Layer("health", plan.health, lambda probe: check_health(probe, plan)),
        Layer("completion", plan.completion, lambda probe: check_completion(probe, plan.model)),
    ]
    if plan.tool_call is not None:
        layers.append(
            Layer("tool call", plan.tool_call, lambda probe: check_tool_call(probe, plan.model))
        )
    if plan.concurrent:
        layers.append(
            Layer(
                f"{plan.concurrent} concurrent",
                plan.concurrent_layer or plan.completion,
                lambda probe: check_concurrent(probe, plan.model, plan.concurrent),
            )
        )
    return tuple(layers)


def check_port(probe: HttpProbe) -> Passed | Failed:
    """Ask whether something listens."""
    answer = probe.port(deadline_s=PORT_S)
    if answer == Unreachable(NOTHING_LISTENS):
        return Failed("unreachable", f"{NOTHING_LISTENS} yet")
    return _not_answered(answer) or Passed("something listens")


def check_health(probe: HttpProbe, plan: ReadyPlan) -> Passed | Failed:
    """Ask the health endpoint; anything but 200 is not healthy."""
    answer = probe.get(plan.health_path, deadline_s=REQUEST_S)
    failed = _not_answered(answer)
    if failed or not isinstance(answer, Answered):
        return failed or Failed("unknown", "no answer")
    if answer.status != 200:
        return Failed("unhealthy", f"{plan.health_path} answered {_shown(answer)}")
    meaning = f", which means: {plan.health_meaning}" if plan.health_meaning else ""
    return Passed(f"{plan.health_path} answered 200{meaning}")


def check_completion(probe: HttpProbe, model: str) -> Passed | Failed:
    """Ask for a short text; it must be sound and come from the expected model."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Reply with one short sentence."}],
        "max_tokens": _TEXT_TOKENS,
        "temperature": 0,
        "stream": False,
    }
    text = Truth(expects=(Expectation(),))
    return _check_chat(probe, json.dumps(body).encode(), text, model, may_be_cut=True)


def check_tool_call(probe: HttpProbe, model: str) -> Passed | Failed:
    """Ask for a tool call; it must parse and hold the planted value."""
    scenario = build_scenario(
        _PROBE, root_seed=0, run_index=0, session=0, calibration=Calibration()
    )
    messages = first_messages(scenario)
    body = request_body(_PROBE, model=model, messages=messages, request_seed=0)
    truth = truth_of(scenario, _PROBE, root_seed=0, run_index=0)
    return _check_chat(probe, body, truth, model, may_be_cut=False)


def check_concurrent(probe: HttpProbe, model: str, wanted: int) -> Passed | Failed:
    """Ask for many completions at once; every one must be sound."""
    with ThreadPoolExecutor(wanted, "readiness") as pool:
        asked = [pool.submit(check_completion, probe, model) for _ in range(wanted)]
        answers = [each.result() for each in asked]
    failed = [answer for answer in answers if isinstance(answer, Failed)]
    if failed:
        return Failed(failed[0].state, f"{len(failed)} of {wanted} at once: {failed[0].why}")
    return Passed(f"{wanted} completions at once")


def _check_chat(
    probe: HttpProbe, body: bytes, truth: Truth, model: str, *, may_be_cut: bool
) -> Passed | Failed:
    answer = probe.chat(body, deadline_s=REQUEST_S)
    failed = _not_answered(answer)
    if failed or not isinstance(answer, Answered):
        return failed or Failed("unknown", "no answer")
    if answer.status != 200:
        return Failed("unhealthy", f"a chat completion answered {_shown(answer)}")
    exchange = Exchange(
        round=1, request=body.decode(), status=200, body=answer.body.decode("utf-8", "replace")
    )
    reply = assemble(exchange)
    if model and reply.model and not is_model(reply.model, model):
        return Failed("unhealthy", f"model `{reply.model}` answered instead of `{model}`")
    outcome = classify(SessionRecord(0, truth, (exchange,)))
    if outcome.outcome in _sound(may_be_cut=may_be_cut):
        said = reply.content or reply.reasoning or (reply.calls[0].name if reply.calls else "")
        return Passed(f"model `{reply.model}` said: {said[:60]}")
    return Failed("unhealthy", f"a chat completion came back as {_evidence(outcome)}")


def _sound(*, may_be_cut: bool) -> frozenset[OutcomeClass]:
    """Return the classes that a short probe may end in: its few tokens may cut a fine text."""
    always = {OutcomeClass.DONE, OutcomeClass.MAXROUNDS}
    return frozenset(always | ({OutcomeClass.TRUNCATED} if may_be_cut else set()))


def is_model(answered: str, expected: str) -> bool:
    """Tell whether an answer's model is the expected one; some servers append a revision."""
    return answered == expected or answered.startswith(f"{expected}@")


def _not_answered(answer: Answer) -> Failed | None:
    match answer:
        case Unreachable(why=why):
            return Failed("unreachable", why)
        case Unknown(why=why):
            return Failed("unknown", why)
        case Answered():
            return None


def _shown(answer: Answered) -> str:
    text = " ".join(answer.body[:200].decode("utf-8", "replace").split())
    return f"{answer.status} {text}".strip()


def _evidence(outcome: SessionOutcome) -> str:
    shown = [f"{each.flag} ({each.evidence[:80]})" for each in outcome.findings if each.evidence]
    return f"{outcome.outcome}: {', '.join(shown or outcome.flags)}"
