"""Planning asks a host in batches, however many files are concerned."""

import pytest

from fleetctl.cli.console import Console
from fleetctl.cli.wiring import edges
from fleetctl.spec.loader import load_inventory
from fleetctl.workflow.experiment import read
from fleetctl.workflow.fleet_run import plan_all
from fleetctl.workflow.reach import reached
from fleetctl.workflow.site import sites_of

pytestmark = pytest.mark.lab

MANY = "/srv/dsv4/many"
FILES = 20
MAKE = f"mkdir {MANY} && cd {MANY} && for n in $(seq {FILES}); do echo $n >$n.txt; done"
PATCH = '[[patch]]\nsource = "payload/many/"\npath = "many"\n'


def test_a_warm_plan_of_20_files_that_need_no_change_takes_at_most_4_channels(person, lab_hosts):
    lab_hosts.run("lab-1", MAKE)
    for number in range(1, FILES + 1):
        person.payload(f"many/{number}.txt", f"{number}\n")
    job = read(person.spec(PATCH)).job
    inventory = load_inventory(person.inventory)

    with (
        edges(person.folder / "runs", Console()) as outside,
        reached(outside, inventory, "lab-1") as hosts,
    ):
        hosts[0].agent.status()
        before = hosts[0].transport.channels_opened
        (plan,) = plan_all(outside, inventory, sites_of(hosts), job)
        taken = hosts[0].transport.channels_opened - before
    lab_hosts.run("lab-1", f"rm -r {MANY}")

    assert [found.changes for found in plan.hosts[0].plans.values()] == [(), ()]
    assert len(plan.hosts[0].touched) >= FILES
    assert taken <= 4
