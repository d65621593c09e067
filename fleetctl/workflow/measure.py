"""One trial on a deployed site: the workload, and what happened beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from fleetctl.analysis.design import Slot
from fleetctl.errors import HostError
from fleetctl.serving.command import CommandTrial, run_command
from fleetctl.serving.load import TrialPlan
from fleetctl.serving.loads import LoadSampler, ServerLoad, strangers
from fleetctl.serving.target import Target
from fleetctl.serving.transcripts import TranscriptFolder
from fleetctl.spec.experiment import CommandSpec, Workload
from fleetctl.spec.metric import Metric
from fleetctl.store.run_folder import RunFolder
from fleetctl.transaction.snapshot import UnitReport
from fleetctl.transaction.telemetry import Telemetry
from fleetctl.trial.classes import OutcomeClass
from fleetctl.trial.metric import CALLED, is_bad
from fleetctl.trial.outcome import SessionOutcome
from fleetctl.trial.scenario import Calibration
from fleetctl.trial.summary import TrialResult, result_to_json
from fleetctl.workflow.deploy import Deployed
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.facts import TrialFacts
from fleetctl.workflow.site import Site
from fleetctl.workflow.workloads import command_of, digest_of, missed_triggers, toolcall_of

_LOG_LINES = 2000


@dataclass(frozen=True)
class Measuring:
    """What all trials of a run share."""

    workload: Workload
    seed: int
    folder: RunFolder
    calibration: Calibration
    metric: Metric = "corruption"


@dataclass(frozen=True)
class Look:
    """A host beside a trial; None where it could not be asked."""

    unit: UnitReport | None
    telemetry: Telemetry | None


def measure(
    edges: Edges, site: Site, deployed: Deployed, slot: Slot, measuring: Measuring, trial: str
) -> TrialFacts:
    """Run one trial and return its facts; everything it saw is in the run's folder.

    Raises:
        Interrupted: the operator asked for an end; sessions so far are recorded.
        HostError: the host could not be reached to begin with.
    """
    edges.talk.say(f"{site.name}: trial {slot.position + 1} ({slot.arm}, run {slot.run + 1})")
    started_s, began_s = edges.clock.now_s(), edges.clock.monotonic_s()
    sequence = measuring.folder.record_numbered(started_s, "measuring", trial=trial)
    before = [_look(host, started_s) for host in site.hosts]
    entry = site.entry.transport.forward(site.address[1], address=site.address[0])
    with entry as address, LoadSampler(address) as sampler:
        result = _run(edges, address, site, slot, measuring, trial)
    since_s = [look.telemetry.at_s if look.telemetry else started_s for look in before]
    after = [_look(host, at_s) for host, at_s in zip(site.hosts, since_s, strict=True)]
    _keep(measuring.folder, trial, site, result, before, after)
    _tell(edges, result, measuring.metric)
    load = sampler.seen
    return TrialFacts(
        trial=trial,
        arm=slot.arm,
        host=site.name,
        host_class=site.entry.host.host_class,
        run_index=slot.run,
        block=slot.block.name if slot.block else "",
        block_runs=slot.block.runs if slot.block else 0,
        started_s=started_s,
        wall_s=edges.clock.monotonic_s() - began_s,
        boot=deployed.boot,
        corrupted=result.corrupted,
        counted=result.counted,
        infra=result.sessions - result.counted,
        planned=result.sessions,
        counts={str(outcome): n for outcome, n in result.counts} if result.by_class else {},
        line=result.line(measuring.metric),
        exposure={**_exposure(result), "batch": load.busy_running},
        lag_p99_ms=result.client.loop_lag_p99_ms if result.client else None,
        concurrency_share=concurrency_share(result),
        patches=deployed.patches,
        processes=deployed.processes,
        workload_sha256=digest_of(measuring.workload),
        disturbances=tuple(_disturbances(site, before, after)),
        missed_triggers=missed_triggers(measuring.workload, result.exposure, load),
        void_because=result.invalid_because,
        foreign_load=foreign_load(result, load),
        sequence=sequence,
        program_exit=program_exit(result),
    )


def program_exit(result: TrialResult) -> int | None:
    """Return how the load's own program ended that reported nothing in its time; else None."""
    command = result.command
    if command is None or command.is_timed_out or command.reported_by != "nothing":
        return None
    return command.exit_code


def foreign_load(result: TrialResult, load: ServerLoad) -> tuple[str, ...] | None:
    """Return by what the server said that somebody else asked it; None where that can't be told.

    A program of one's own may send more than it says, so only the built-in load is compared.
    """
    says_nothing = load.before is None and not load.samples and load.served is None
    if result.client is None or says_nothing:
        return None
    return strangers(load, most_at_once=result.sessions, sent=result.exposure.requests)


def concurrency_share(result: TrialResult) -> float | None:
    """Return the share of the wanted concurrency reached; None when a program drove the load."""
    if result.client is None:
        return None
    return result.exposure.peak_concurrency / max(result.sessions, 1)


def _exposure(result: TrialResult) -> dict[str, float | None]:
    """Return the load per session that ended well; None where none did."""
    count = result.count_of
    clean = count[OutcomeClass.DONE] + count[OutcomeClass.MAXROUNDS]
    if not clean or not result.clean.requests:
        return {"concurrency": result.exposure.busy_concurrency or None}
    return {
        "concurrency": result.exposure.busy_concurrency,
        "tokens": result.clean.completion_tokens / clean,
        "rounds": result.clean.rounds / clean,
        "in_flight_s": result.clean.concurrency_s / clean,
    }


def _run(
    edges: Edges,
    address: tuple[str, int],
    site: Site,
    slot: Slot,
    measuring: Measuring,
    trial: str,
) -> TrialResult:
    target = Target(f"http://{address[0]}:{address[1]}", site.entry.host.model)
    folder = measuring.folder.path / trial
    if isinstance(measuring.workload, CommandSpec):
        command = CommandTrial(
            command_of(measuring.workload), target, measuring.seed, slot.run, slot.arm
        )
        return run_command(command, folder, edges.clock, is_stopped=lambda: edges.stop.is_asked)
    labels = {"arm": slot.arm, "host": site.name, "trial": trial, "run": measuring.folder.run_id}
    plan = TrialPlan(
        workload=toolcall_of(measuring.workload),
        target=target,
        root_seed=measuring.seed,
        run_index=slot.run,
        calibration=measuring.calibration,
        labels=labels,
    )
    progress = _Progress(edges, trial, plan.workload.sessions, measuring.metric)
    return edges.drive(
        plan,
        store=TranscriptFolder(folder),
        on_outcome=progress.count,
        is_stopped=lambda: edges.stop.is_asked,
    )


class _Progress:
    """Says how many sessions have ended, and how many of them badly."""

    def __init__(self, edges: Edges, trial: str, sessions: int, metric: Metric) -> None:
        self._talk = edges.talk
        self._metric = metric
        self._trial = trial
        self._sessions = sessions
        self._ended = 0
        self._bad = 0

    def count(self, outcome: SessionOutcome) -> None:
        self._ended += 1
        self._bad += is_bad(outcome.outcome, self._metric)
        told = f"{self._ended}/{self._sessions} sessions ended, {self._bad} {CALLED[self._metric]}"
        self._talk.progress(self._trial, told)


def _tell(edges: Edges, result: TrialResult, metric: Metric) -> None:
    edges.talk.say(f"  {result.line(metric)}")
    edges.talk.say(f"  {result.finer_line()}")
    for reason in result.invalid_because:
        edges.talk.say(f"  not usable: {reason}")


def _look(host: Reached, since_s: float) -> Look:
    """Return what a host says of itself; silence stays silence, never "nothing happened"."""
    try:
        unit = host.agent.unit(host.host.unit, log_lines=0)
        return Look(unit, host.agent.telemetry(since_s=since_s))
    except HostError:
        return Look(None, None)


def _disturbances(site: Site, before: list[Look], after: list[Look]) -> Iterator[str]:
    for host, first, last in zip(site.hosts, before, after, strict=True):
        for what in disturbances_between(first, last):
            yield f"{host.name}: {what}"


def disturbances_between(first: Look, last: Look) -> Iterator[str]:
    """Yield what happened to a host between two looks that makes a trial unusable."""
    if first.unit is None or last.unit is None or not first.telemetry or not last.telemetry:
        yield "the host could not be looked at beside the trial"
        return
    if first.unit.invocation != last.unit.invocation:
        yield "the unit was restarted"
    elif first.unit.restarts != last.unit.restarts:
        yield f"the unit restarted itself ({first.unit.restarts} -> {last.unit.restarts})"
    if last.unit.active_state != "active":
        yield f"the unit is {last.unit.active_state}/{last.unit.sub_state}"
    if first.telemetry.boot_id != last.telemetry.boot_id:
        yield "the host was rebooted"
    if (first.telemetry.oom_kills or 0) < (last.telemetry.oom_kills or 0):
        yield "a process was killed for lack of memory"
    for line in last.telemetry.xid_lines:
        yield f"GPU error: {line}"


def _keep(
    folder: RunFolder,
    trial: str,
    site: Site,
    result: TrialResult,
    before: list[Look],
    after: list[Look],
) -> None:
    folder.write_json(f"{trial}/result.json", result_to_json(result))
    for host, first, last in zip(site.hosts, before, after, strict=True):
        looks = {"before": asdict(first), "after": asdict(last)}
        folder.write_json(f"{trial}/{host.name}.telemetry.json", looks)
        try:
            log = host.agent.log(host.host.unit, most_lines=_LOG_LINES)
        except HostError as error:
            folder.write(f"{trial}/{host.name}.log", f"not readable: {error}\n".encode())
            continue
        text = "".join(f"{line.at_s:.0f} [{line.pid}] {line.text}\n" for line in log.lines)
        folder.write(f"{trial}/{host.name}.log", text.encode())
