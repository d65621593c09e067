"""`fleetctl repro`: the tool-calling workload against any server, without a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetctl.cli.boundary import missing
from fleetctl.cli.options import DEFAULT_RUNS, AsJson, finite

if TYPE_CHECKING:
    from fleetctl.cli.console import Console
    from fleetctl.serving.load import TrialPlan
    from fleetctl.serving.self_test import Rung
    from fleetctl.serving.target import Target
    from fleetctl.store.run_folder import RunFolder
    from fleetctl.trial.exposure import Exposure
    from fleetctl.trial.outcome import SessionOutcome
    from fleetctl.trial.summary import ClientHealth, TrialResult
    from fleetctl.trial.workload import ToolcallWorkload

API_KEY_VARIABLE = "FLEETCTL_API_KEY"
KIND = "repro"
SHOWN_SESSIONS = 10


def repro(  # noqa: PLR0913, PLR0917 - one parameter per option
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(help="Base URL of an OpenAI-compatible server.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Model name; default: the first that is served.", show_default=False),
    ] = None,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions at once.")] = 40,
    rounds: Annotated[int, typer.Option(min=1, help="Requests per session.")] = 3,
    context_tokens: Annotated[int, typer.Option(min=0, help="Filler context in tokens.")] = 300,
    max_tokens: Annotated[int, typer.Option(min=1, help="Limit per reply.")] = 1800,
    think: Annotated[
        float, typer.Option(callback=finite, min=0, help="Mean think time in seconds.")
    ] = 0.0,
    cache_mode: Annotated[str, typer.Option(help="unique, shared or mixed prefixes.")] = "unique",
    stream: Annotated[bool, typer.Option(help="Ask for streamed replies.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is sent.")] = 0,
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="Client processes; default: as needed.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for transcripts; default: a new one below runs/."),
    ] = None,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Measure this machine's ceiling instead.")
    ] = False,
    most: Annotated[int, typer.Option(min=25, help="Most streams of the self-test.")] = 1600,
    as_json: AsJson = False,
) -> int:
    """Run the tool-calling workload against a server: no deployment, no host access.

    Exits 8 when the trial can't be used (the reasons are printed). A bearer token is taken from
    FLEETCTL_API_KEY.
    """
    from fleetctl.cli.console import Console
    from fleetctl.errors import ExitCode, InputError
    from fleetctl.trial.workload import CacheMode, ThinkKind, ThinkTime, ToolcallWorkload

    console = Console()
    if self_test:
        return _self_test(console, processes or 1, most, as_json)
    if url is None:
        raise missing(context, "option '--url', or --self-test")
    if cache_mode not in set(CacheMode):
        known = ", ".join(CacheMode)
        raise InputError("no such cache mode", why=cache_mode, next_step=f"choose one of {known}")
    workload = ToolcallWorkload(
        sessions=sessions,
        rounds=rounds,
        context_tokens=context_tokens,
        max_tokens=max_tokens,
        think_time=ThinkTime(ThinkKind.LOGNORMAL if think else ThinkKind.NONE, think),
        cache_mode=CacheMode(cache_mode),
        stream=stream,
    )
    plan = _plan(console, workload, _target(url, model), seed)
    folder = _opened(out or _new_folder(), plan)
    result = _run(console, plan, folder, processes)
    _close(folder, result)
    _show(result, as_json=as_json)
    return ExitCode.OK if result.is_valid else ExitCode.INVALID


def _target(url: str, model: str | None) -> Target:
    import os

    from fleetctl.clock import SystemClock
    from fleetctl.errors import InputError
    from fleetctl.serving.probe import Answered, TargetProbe, list_models
    from fleetctl.serving.target import Target

    api_key = os.environ.get(API_KEY_VARIABLE)
    probe = TargetProbe(Target(url, "", api_key), SystemClock())
    port = probe.port(deadline_s=10.0)
    if not isinstance(port, Answered):
        raise InputError(
            f"nothing answers at {url}",
            why=port.why,
            next_step="start the server, or check host and port; a host's own 127.0.0.1 is "
            "reached through `ssh -L`",
        )
    served = list_models(probe)
    if model is None and not served:
        raise InputError(
            f"no model known at {url}",
            why="/v1/models named none",
            next_step="check the URL, or name the model with --model",
        )
    if model is not None and served and model not in served:
        raise InputError(
            f"{url} does not serve `{model}`",
            why=f"it serves {', '.join(served)}",
            next_step=f"leave out --model, or give --model {served[0]}",
        )
    return Target(url, model or served[0], api_key)


def _plan(console: Console, workload: ToolcallWorkload, target: Target, seed: int) -> TrialPlan:
    from fleetctl.clock import SystemClock
    from fleetctl.serving.calibrate import calibrate
    from fleetctl.serving.load import TrialPlan
    from fleetctl.serving.probe import TargetProbe

    calibration = calibrate(TargetProbe(target, SystemClock()), target.model)
    console.say(
        f"model {target.model} at {target.shown_url}; {calibration.tokens_per_word:.2f} tokens per "
        f"filler word ({calibration.source})"
    )
    return TrialPlan(workload, target, root_seed=seed, calibration=calibration)


def _opened(path: Path, plan: TrialPlan) -> RunFolder:
    """Return the trial's folder, which is a run as others are: `fleetctl results` has it.

    Raises:
        InputError: it is the folder of another kind of run, whose record would be lost.
    """
    from fleetctl.clock import SystemClock
    from fleetctl.errors import InputError
    from fleetctl.store.run_folder import RunFolder

    folder = RunFolder(path)
    if folder.has("run.json") and folder.kind != KIND:
        raise InputError(
            f"{path} is the folder of another run",
            why=f"it is of kind {folder.kind or 'unknown'}",
            next_step="name a folder of its own with --out",
        )
    name = f"{plan.target.model} at {plan.target.shown_url}"
    head = {"run": path.resolve().name, "kind": KIND, "name": name, "at_s": SystemClock().now_s()}
    folder.write_json("run.json", head)
    return folder


def _run(
    console: Console, plan: TrialPlan, folder: RunFolder, processes: int | None
) -> TrialResult:
    import shlex

    from fleetctl.cli.typed import typed
    from fleetctl.errors import Interrupted
    from fleetctl.serving.transcripts import TranscriptFolder
    from fleetctl.serving.trial import run_trial

    ended: list[SessionOutcome] = []

    def on_outcome(outcome: SessionOutcome) -> None:
        ended.append(outcome)
        bad = sum(each.is_corrupt for each in ended)
        console.progress("sessions", f"{len(ended)}/{plan.workload.sessions} ended, {bad} corrupt")

    store = TranscriptFolder(folder.path)
    try:
        result = run_trial(plan, store=store, processes=processes, on_outcome=on_outcome)
    except KeyboardInterrupt as stopped:
        raise Interrupted(
            "stopped before the end",
            why=f"{len(ended)} of {plan.workload.sessions} sessions had ended; their transcripts"
            f" are in {folder.path}",
            next_step=f"`fleetctl reclassify {shlex.quote(str(folder.path))}` judges what was"
            f" recorded; `{typed()}` starts anew",
        ) from stopped
    console.say(f"transcripts: {folder.path}")
    return result


def _close(folder: RunFolder, result: TrialResult) -> None:
    """Write down what the trial says, as data and as it is printed."""
    from fleetctl.clock import SystemClock
    from fleetctl.trial.summary import result_to_json

    folder.write_json("result.json", result_to_json(result))
    folder.write("report.txt", "".join(f"{line}\n" for line in _lines(result)).encode())
    folder.record(SystemClock().now_s(), "finished")


def _new_folder() -> Path:
    from datetime import UTC, datetime

    from fleetctl.clock import SystemClock

    now = datetime.fromtimestamp(SystemClock().now_s(), UTC)
    return DEFAULT_RUNS / f"repro-{now:%Y%m%d-%H%M%S}"


def _show(result: TrialResult, *, as_json: bool) -> None:
    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.trial.summary import result_to_json

    if as_json:
        print_json(result_to_json(result))
        return
    print_lines(_lines(result))


def _lines(result: TrialResult) -> list[str]:
    from fleetctl.cli.classify import session_line

    bad = [outcome for outcome in result.outcomes if outcome.is_corrupt]
    return [
        result.line(),
        f"classes: {result.finer_line()}",
        f"load: {_load_line(result.exposure)}",
        f"client: {_health_line(result.client)}",
        *(f"corrupt: {session_line(outcome)}" for outcome in bad[:SHOWN_SESSIONS]),
        *(f"INVALID: {reason}" for reason in result.invalid_because),
    ]


def _load_line(load: Exposure) -> str:
    first = "" if load.ttft_p50_s is None else f", first token in {load.ttft_p50_s * 1000:.0f} ms"
    return (
        f"{load.rounds} of {load.requests} requests answered, {load.peak_concurrency} at once, "
        f"{load.concurrency_s:.1f} concurrency-seconds, "
        f"{load.completion_tokens} completion tokens{first}"
    )


def _health_line(client: ClientHealth | None) -> str:
    if client is None:
        return "not measured"
    return f"loop lag p99 {client.loop_lag_p99_ms:.0f} ms, {client.cpu_share:.0%} of a core"


def _self_test(console: Console, processes: int, most: int, as_json: bool) -> int:
    from dataclasses import asdict

    from fleetctl.cli.data import print_json, print_lines
    from fleetctl.errors import ExitCode
    from fleetctl.serving.self_test import LADDER, self_test

    ladder = tuple(sessions for sessions in LADDER if sessions <= most)
    ceiling = self_test(
        processes=processes,
        ladder=ladder,
        on_rung=lambda rung: console.say(f"  {_rung_line(rung)}"),
    )
    if as_json:
        rungs = [
            {"sessions": rung.sessions, "holds": rung.holds, "pace": rung.pace}
            | {"client": asdict(rung.result.client) if rung.result.client else None}
            for rung in ceiling.rungs
        ]
        found = {"sessions": ceiling.sessions, "tokens_per_s": ceiling.tokens_per_s}
        print_json({**found, "processes": processes, "rungs": rungs})
    else:
        print_lines([ceiling.sentence()])
    return ExitCode.OK if ceiling.sessions else ExitCode.INVALID


def _rung_line(rung: Rung) -> str:
    word = "ok" if rung.holds else "too many"
    health = _health_line(rung.result.client)
    return f"{rung.sessions} streams: {word}; {health}, {rung.pace:.0%} of the offered pace"
