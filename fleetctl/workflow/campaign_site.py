"""Cells on one site: from the hosts as found, through proof and trial, back to as found."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from fleetctl.analysis.design import Slot
from fleetctl.errors import (
    DriftError,
    ExitCode,
    FleetError,
    HostError,
    LeaseHeld,
    NotRestored,
    RestoreConflict,
    StoreError,
)
from fleetctl.serving.calibrate import calibrate
from fleetctl.spec.experiment import ToolcallSpec
from fleetctl.spec.inventory import Inventory
from fleetctl.store.campaign import CellResult, CellRun
from fleetctl.store.run_folder import RunFolder
from fleetctl.transaction.snapshot import HeldTransaction
from fleetctl.trial.scenario import Calibration
from fleetctl.workflow.as_found import say_what_is_left
from fleetctl.workflow.deploy import Deployed, Prepared, deploy
from fleetctl.workflow.edges import Edges, Reached
from fleetctl.workflow.job import Job
from fleetctl.workflow.lease_keeper import LeaseKeeper
from fleetctl.workflow.measure import Measuring, measure
from fleetctl.workflow.observe import look
from fleetctl.workflow.prepare import HostPlan, SitePlan, check_on_host, plan_site
from fleetctl.workflow.presence import PATIENCE_S, bring_back_late, watchful
from fleetctl.workflow.reach import reach
from fleetctl.workflow.ready import probe_of
from fleetctl.workflow.restored import RestoredProof, prove_restored
from fleetctl.workflow.settling import lease_mark
from fleetctl.workflow.site import NamedSite, Site, check_layout, find_site
from fleetctl.workflow.telling import machine_failed

_SETTLE_POLL_S = 1.0
_SETTLE_POLLS = 60
_OPEN = ("applying", "applied", "reverting")
_calibrating = threading.Lock()


@dataclass
class HeldSite:
    """A site under our leases; cells are measured on it one after the other.

    Attributes:
        plan: of every arm, from the hosts as found.
        restored: what was shown about each host when it was given back.
    """

    edges: Edges
    folder: RunFolder
    job: Job
    plan: SitePlan
    prepared: list[Prepared] = field(default_factory=list)
    restored: list[RestoredProof] = field(default_factory=list)
    has_changed: bool = False
    _deployed: Deployed | None = None

    @property
    def keepers(self) -> list[LeaseKeeper]:
        """The leases of the site's hosts."""
        return [one.keeper for one in self.prepared]

    @property
    def resume(self) -> str:
        """The command that goes on with the run later."""
        return f"`fleetctl resume {self.folder.run_id}`"

    @property
    def arm(self) -> str:
        """Name of the arm that stands on the site; empty while it is as found."""
        return "" if self._deployed is None else self._deployed.arm

    def measure(self, run: CellRun, job: Job) -> CellResult:
        """Deploy the arm of a cell, prove it, and make one trial.

        From the cell before only what differs is changed, with one restart; the proof is made
        anew each time. `job` says the workload of this cell.

        Raises:
            FleetError: the cell could not be measured. The site is still held: leave it, so that
                the hosts are restored.
        """
        edges = watchful(self.edges, self.keepers)
        try:
            return self._measure(edges, run, job)
        except FleetError:
            if not self.edges.stop.is_asked:
                # what failed on a host that is gone says nothing about the cell
                for keeper in self.keepers:
                    keeper.ask()
                    keeper.check()
            raise

    def _measure(self, edges: Edges, run: CellRun, job: Job) -> CellResult:
        deployed = self._deploy(edges, run.arm)
        name = trial_name(run, self.plan.site.name)
        slot = Slot(run.position, run.cell, run.run, None)
        measuring = Measuring(
            job.workload, job.trials.seed, self.folder, self._calibration(job), job.metric
        )
        facts = measure(edges, self.plan.site, deployed, slot, measuring, name)
        self.folder.write_json(f"{name}/facts.json", facts.to_json())
        self._record("trial", trial=name, cell=run.cell, run=run.run, line=facts.line)
        return CellResult(
            run.id, run.digest, self.plan.site.name, self._epoch(), name, facts.to_json()
        )

    def _deploy(self, edges: Edges, arm: str) -> Deployed:
        """Put an arm on the site, unless the very processes that were proven still serve it."""
        standing = self._deployed
        if standing is not None and standing.arm == arm and not self.job.trials.boot_per_run:
            for keeper in self.keepers:
                keeper.check()
            if self._boot() == standing.boot:
                return standing
        self._record("deploying", site=self.plan.site.name, arm=arm)
        self.has_changed = True
        self._deployed = None
        deployed = deploy(edges, self.plan.site, self.prepared, arm, self.job.ready)
        self._deployed = deployed
        shown = {"shown": deployed.proof.shown, "notes": deployed.proof.notes}
        self._record("deployed", site=self.plan.site.name, arm=arm, **shown)
        return deployed

    def _boot(self) -> str:
        """Return the invocations of the site's units, joined as `Deployed.boot` is."""
        reports = [
            host.agent.unit(host.host.unit, log_lines=0).invocation for host in self.plan.site.hosts
        ]
        return "+".join(reports)

    def _calibration(self, job: Job) -> Calibration:
        """Return how tokens become words: measured once per run, the same for all cells."""
        if not isinstance(job.workload, ToolcallSpec):
            return Calibration()
        with _calibrating:
            if self.folder.has("calibration.json"):
                return Calibration(**self.folder.read_json("calibration.json"))
            entry = self.plan.site.entry
            url = entry.host.router_url or entry.host.service_url
            with probe_of(self.edges, entry, url) as probe:
                found = calibrate(probe, entry.host.model)
            kept = {"tokens_per_word": found.tokens_per_word, "source": found.source}
            self.folder.write_json("calibration.json", kept)
            return found

    def _epoch(self) -> str:
        """Return which boot of the hosts this is; empty where one does not say."""
        with suppress(HostError):
            looks = [host.agent.telemetry(since_s=0.0) for host in self.plan.site.hosts]
            return "+".join(look.boot_id for look in looks)
        return ""

    def prove_restored(self) -> None:
        """Show that the hosts are as they were found.

        Raises:
            NotRestored: one is not, or could not be looked at.
        """
        for host in self.plan.hosts:
            proof = prove_restored(self.edges, host)
            self.restored.append(proof)
            self._record_late("restored", host=proof.host, files=proof.files)

    def _record(self, kind: str, **facts: object) -> None:
        self.folder.record(self.edges.clock.now_s(), kind, **facts)

    def _record_late(self, kind: str, **facts: object) -> None:
        """Record what is true whether or not it can be written: a full disk hides no error."""
        try:
            self._record(kind, **facts)
        except StoreError as error:
            self.edges.talk.say(f"not recorded: {kind}: {error}")


def trial_name(run: CellRun, site: str) -> str:
    """Return the folder of one attempt's trial: no two attempts share one."""
    return f"trials/{run.position + 1:03d}-{run.digest[:8]}-run{run.run + 1}-{site}-{run.attempt}"


@contextmanager
def held_site(
    edges: Edges, inventory: Inventory, folder: RunFolder, job: Job, site: str
) -> Iterator[HeldSite]:
    """Reach a site, plan every arm of a job on it, and hold it until the block is left.

    Leaving restores the hosts and proves it, whatever happened inside.

    Raises:
        LeaseHeld: somebody else works there; the message names them.
        HostError: a host can't be reached.
        StoreError: this machine can't keep what is measured.
        DriftError: it is not what spec and inventory say; nothing was changed.
        NotRestored: a host is not back.
        RestoreConflict: back, except files that somebody changed meanwhile.
    """
    named = find_site(inventory, job.target, site)
    with reached_site(edges, inventory, named) as found:
        for host in found.hosts:
            _wait_until_settled(edges, host)
        plan = planned(edges, inventory, found, job)
        say_what_is_left(edges, folder, (plan,))
        with hold(edges, folder, job, plan) as held:
            yield held


def planned(edges: Edges, inventory: Inventory, site: Site, job: Job) -> SitePlan:
    """Return the plan of every arm on a site, which its hosts have looked at.

    Raises:
        FleetError: something can't be done exactly; nothing was changed.
    """
    check_layout(inventory, site, job.arms)
    plan = plan_site(site, job.arms, job.ready)
    check_on_host(edges, plan)
    return plan


@contextmanager
def hold(edges: Edges, folder: RunFolder, job: Job, plan: SitePlan) -> Iterator[HeldSite]:
    """Hold a planned site until the block is left; see `held_site`."""
    held = HeldSite(edges, folder, job, plan)
    try:
        with ExitStack() as stack:
            for host in plan.hosts:
                held.prepared.append(_hold_host(stack, held, host))
            for host in plan.hosts:
                _check_as_found(host)
            yield held
    except (NotRestored, RestoreConflict):
        raise
    except FleetError as error:
        _leave(held)
        raise _after_changes(held, error) from error.__cause__
    except OSError as error:
        _leave(held)
        raise _after_changes(held, machine_failed(error, resume=held.resume)) from error
    _leave(held)


def _after_changes(held: HeldSite, error: FleetError) -> FleetError:
    """Return an error whose exit code tells that hosts were changed, and are back."""
    if held.has_changed and error.exit_code is ExitCode.REFUSED:
        error.exit_code = ExitCode.FAILED_RESTORED
    return error


def _leave(held: HeldSite) -> None:
    """Wait for hosts that went away, restore them, and show that all are back."""
    bring_back_late(held.edges, held.keepers, held.resume, PATIENCE_S)
    if held.has_changed:
        held.prove_restored()


def _hold_host(stack: ExitStack, held: HeldSite, host: HostPlan) -> Prepared:
    run_id, name = held.folder.run_id, host.reached.name
    stack.enter_context(held.edges.stop.holds(held.job.kind, run_id, name))
    keeper = stack.enter_context(
        LeaseKeeper(
            host.reached,
            run_id=held.folder.run_id,
            holder=held.edges.holder,
            purpose=held.job.purpose,
            length_s=held.job.lease_s,
            mark=lease_mark(held.folder),
        )
    )
    held.folder.record(
        held.edges.clock.now_s(), "held", host=host.reached.name, lease=keeper.request.id
    )
    return Prepared(
        host.reached,
        keeper,
        host.plans,
        held.plan.arms,
        host.wanted,
        host.within,
        host.own_flags,
        held.job.flags,
    )


def _check_as_found(host: HostPlan) -> None:
    """Refuse a plan made of a host that somebody else was about to change or to restore.

    Raises:
        DriftError: a file is no longer what the plan was made from.
    """
    now = look(host.reached, host.touched)
    changed = [
        path
        for path, before in host.touched.items()
        if path in now and (before.kind, before.sha256) != (now[path].kind, now[path].sha256)
    ]
    if changed:
        raise DriftError(
            f"{host.reached.name} changed while it was planned",
            why=f"{changed[0]} is no longer as it was looked at",
            next_step="try again; nothing was applied",
        )


def _wait_until_settled(edges: Edges, host: Reached) -> None:
    """Wait while a host restores itself after the end of another run: it is not as found yet.

    Raises:
        LeaseHeld: it does not; the message names the run.
    """
    polls = 0
    while (loose := _loose(host)) is not None:
        if polls == _SETTLE_POLLS:
            raise LeaseHeld(
                f"{host.name} still holds what an earlier run left there",
                why=f"run {loose.run_id} ({loose.purpose}) of {loose.holder} was not restored",
                next_step=f"`fleetctl rollback {loose.run_id}`",
            )
        edges.talk.progress(host.name, f"{host.name} is restoring what {loose.run_id} left")
        edges.clock.sleep(_SETTLE_POLL_S)
        polls += 1


def _loose(host: Reached) -> HeldTransaction | None:
    """Return a change that is open on a host and that no live lease answers for."""
    status = host.agent.status()
    live = {
        name for lease in status.leases if lease.expires_in_s > 0 for name in lease.transactions
    }
    open_ones = (t for t in status.transactions if t.state in _OPEN and t.id not in live)
    return next(open_ones, None)


@contextmanager
def reached_site(edges: Edges, inventory: Inventory, named: NamedSite) -> Iterator[Site]:
    """Yield a site whose hosts are reached; the connections are closed afterwards.

    Raises:
        HostError: one can't be reached.
    """
    with ExitStack() as stack:
        hosts = []
        for name in named.hosts:
            host = reach(edges, name, inventory.hosts[name])
            stack.callback(host.transport.close)
            hosts.append(host)
        yield Site(tuple(hosts))


def measure_cell(
    edges: Edges, inventory: Inventory, folder: RunFolder, job: Job, run: CellRun, site: str
) -> CellResult:
    """Measure one run of one cell on one site: hosts as found, then proof and trial, then back.

    Args:
        edges: the outside world.
        inventory: which holds the hosts of the site.
        folder: of the run; transcripts, facts and events are written there.
        job: one of its arms is called `run.arm`; its workload is the cell's.
        run: what is measured.
        site: a name of `named_sites(inventory, job.target)`.

    Raises:
        FleetError: as for `held_site`, or that the cell could not be measured; the exit code
            tells the state of the hosts.
    """
    with held_site(edges, inventory, folder, job, site) as held:
        return held.measure(run, job)
