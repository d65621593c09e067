"""A/A runs: one unchanged arm, again and again, for the dispersion that runs have by themselves."""

from __future__ import annotations

from dataclasses import replace

from fleetctl.analysis.design import Slot
from fleetctl.analysis.history import AaRecord
from fleetctl.spec.inventory import Inventory
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.experiment import Asked
from fleetctl.workflow.facts import aa_record
from fleetctl.workflow.fleet_run import Measured, begin, measure_sites, plan_all
from fleetctl.workflow.hopeless import check_startable
from fleetctl.workflow.reach import reached
from fleetctl.workflow.site import sites_of


def run_aa(edges: Edges, inventory: Inventory, asked: Asked, *, runs: int) -> Measured:
    """Measure the control arm of an experiment `runs` times on each site.

    Raises:
        FleetError: with the exit code that tells the state of the hosts.
    """
    job = replace(asked.job, kind="aa", arms=(asked.arms.control,))
    check_startable(job.workload)
    with reached(edges, inventory, job.target) as hosts:
        plans = plan_all(edges, inventory, sites_of(hosts), job)
        folder = begin(edges, job, plans)
        slots = [Slot(run, "control", run, None) for run in range(runs)]
        return measure_sites(edges, folder, job, plans, {p.site.name: slots for p in plans})


def record_of(measured: Measured) -> tuple[AaRecord, ...]:
    """Return one record per host class, for later verdicts; disturbed trials are left out."""
    classes = sorted({(fact.host_class, fact.workload_sha256) for fact in measured.facts})
    return tuple(
        _record(measured, host_class, workload_sha256) for host_class, workload_sha256 in classes
    )


def _record(measured: Measured, host_class: str, workload_sha256: str) -> AaRecord:
    facts = [fact for fact in measured.facts if fact.host_class == host_class]
    return aa_record(f"{measured.folder.run_id}/{host_class}", host_class, workload_sha256, facts)
