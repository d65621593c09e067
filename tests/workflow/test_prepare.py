"""What hosts are asked about new files before anything is deployed."""

from types import SimpleNamespace

import pytest

from fleetctl.errors import InputError
from fleetctl.plan.planner import Change, Plan
from fleetctl.transaction.outcome import Finding
from fleetctl.workflow.prepare import check_on_host

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
