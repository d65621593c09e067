"""Sites: hosts that serve together are changed together."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.arms import Arm, PatchContent
from fleetctl.spec.experiment import Patch
from fleetctl.spec.inventory import Host, Inventory
from fleetctl.workflow.edges import Reached
from fleetctl.workflow.site import address_of, by_machine, check_layout, sites_of

FACTS = {
    "address": "10.0.0.1",
    "tree": "/t",
    "python": "/v/bin/python",
    "unit": "u.service",
    "service_url": "http://127.0.0.1:30002",
    "model": "m",
}


def host(name: str, **changes) -> Reached:
    transport = SimpleNamespace(host_name=name)
    return Reached(name, Host(**{**FACTS, **changes}), transport, SimpleNamespace())


def test_hosts_without_a_router_are_sites_of_their_own():
    assert [site.name for site in sites_of([host("a"), host("b")])] == ["a", "b"]


def test_hosts_behind_one_router_are_one_site_in_restart_order():
    router = "http://10.0.0.9:8000"
    hosts = [host("d", router_url=router, restart_order=1), host("p", router_url=router)]

    (site,) = sites_of(hosts)

    assert site.name == "p+d"
    assert site.address == ("10.0.0.9", 8000)


def test_sites_of_one_machine_are_measured_in_turn():
    same = {"labels": {"machine": "m"}}
    sites = sites_of([host("a", **same), host("b", **same), host("c")])

    assert [[site.name for site in group] for group in by_machine(sites)] == [["a", "b"], ["c"]]


def test_a_change_of_layout_on_one_role_only_is_refused():
    router = {"router_url": "http://10.0.0.9:8000"}
    prefill, decode = host("p", **router), host("d", **router)
    inventory = Inventory(hosts={"p": prefill.host, "d": decode.host})
    arm = Arm(
        "treatment", (PatchContent(Patch(source="x.py", path="x.py", layout=True), {"": b""}),)
    )

    check_layout(inventory, sites_of([prefill, decode])[0], [arm])
    with pytest.raises(InputError, match="p behind the same router"):
        check_layout(inventory, sites_of([decode])[0], [arm])


def test_addresses():
    assert address_of("http://127.0.0.1:30002") == ("127.0.0.1", 30002)
    assert address_of("https://h") == ("h", 443)
