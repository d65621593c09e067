"""What hosts are asked about new files before anything is deployed."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import InputError, LeaseHeld
from fleetctl.plan.planner import Change, Plan
from fleetctl.transaction.lease import Lease
from fleetctl.transaction.outcome import Finding
from fleetctl.workflow.prepare import _refuse_held, check_on_host

BROKEN = b"export A=(\n"


class Host:
    """A host whose shell does not like one content."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []

    def check(self, staged, *, interpreter):
        del interpreter
        self.asked += [(file.path, file.content) for file in staged]
        return tuple(
            Finding(file.path, "bash -n", fatal=True, message="unexpected end")
            for file in staged
            if file.content == BROKEN
        )


def site(host, *contents):
    plans = {
        f"arm {n}": Plan("h", (), (Change("/s.sh", b"before", content, "a flag"),))
        for n, content in enumerate(contents)
    }
    reached = SimpleNamespace(name="h", agent=host, host=SimpleNamespace(python="/p"))
    return SimpleNamespace(hosts=[SimpleNamespace(reached=reached, plans=plans)])


def test_every_arm_s_version_of_a_file_is_checked_and_each_once():
    host = Host()
    edges = SimpleNamespace(talk=SimpleNamespace(say=lambda _line: None))

    check_on_host(edges, site(host, b"a", b"b", b"a", None))
    assert host.asked == [("/s.sh", b"a"), ("/s.sh", b"b")]

    with pytest.raises(InputError, match=r"h refuses /s\.sh"):
        check_on_host(edges, site(host, BROKEN, b"b"))


def test_a_held_host_offers_to_resume_the_run_before_its_lease_is_ended():
    lease = Lease("l1", "run-7", "ana@laptop", "e", "x.service", since_s=0.0, until_s=60.0)
    held = SimpleNamespace(lease=lease, expires_in_s=30.0)
    view = SimpleNamespace(observed=SimpleNamespace(status=SimpleNamespace(leases=[held])))
    host = SimpleNamespace(name="h", host=SimpleNamespace(unit="x.service"))

    with pytest.raises(LeaseHeld) as caught:
        _refuse_held(host, view)

    told = caught.value.next_step
    assert "`fleetctl resume run-7`" in told
    assert told.index("fleetctl resume") < told.index("talk to ana@laptop") < told.index("unlock")
