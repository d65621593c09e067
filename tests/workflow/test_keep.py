"""A change stays on every host of a site, or on none."""

from contextlib import ExitStack, contextmanager

import pytest

from fleetctl.errors import ApplyFailed, ConnectionLost, FleetError, HostError
from fleetctl.plan.planner import Plan
from fleetctl.workflow import keep
from fleetctl.workflow.keep import keep_all
from fleetctl.workflow.lease_keeper import LeaseKeeper
from tests.fakes.leaving_host import LeavingHost


@pytest.fixture
def hosts(monkeypatch):
    made = {name: LeavingHost(name) for name in ("a", "b")}

    def log_in(_edges, name, _host):
        host = made[name]
        host.said.append("login")
        if host.silent:
            raise ConnectionLost(f"cannot reach {name}", why="", next_step="")
        return host

    monkeypatch.setattr(keep, "reach", log_in)
    return made


@contextmanager
def held(hosts):
    """Both hosts, changed and held until the block is left."""
    with ExitStack() as stack:
        both = []
        for host in hosts.values():
            keeper = LeaseKeeper(host, run_id="run", holder="h", purpose="p", length_s=60.0)
            both.append((host, stack.enter_context(keeper)))
            keeper.switch(Plan(host.name, (), ()), within=())
        yield both


def test_all_keep_the_change_after_all_were_logged_in_to_anew(hosts):
    with held(hosts) as both:
        keep_all(None, both)

    assert [len(host.kept) for host in hosts.values()] == [1, 1]
    assert all(host.said == ["acquire", "apply", "login", "commit"] for host in hosts.values())


def test_a_lost_answer_is_asked_for_once_more(hosts):
    hosts["b"].answers_lost = 1
    with held(hosts) as both:
        keep_all(None, both)

    assert [len(host.kept) for host in hosts.values()] == [1, 1]


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda b: setattr(b, "refuses_commit", True), ApplyFailed),
        (lambda b: setattr(b, "answers_lost", 2), HostError),
        (lambda b: b.leave(), ConnectionLost),
    ],
    ids=["its dead-man was first", "its answers are lost", "it is away"],
)
def test_one_that_can_not_keep_it_takes_it_back_everywhere(hosts, spoil, error):
    def try_to_keep():
        with held(hosts) as both:
            spoil(hosts["b"])
            keep_all(None, both)

    with pytest.raises(error):
        try_to_keep()

    assert hosts["a"].changes == {}
    assert hosts["a"].lease is None


def test_an_unknown_outcome_is_undone_when_the_host_answers_again(hosts):
    def try_to_keep():
        with held(hosts) as both:
            hosts["b"].answers_lost = 2
            keep_all(None, both)

    with pytest.raises(FleetError, match="fell silent") as failed:
        try_to_keep()

    assert hosts["b"].changes == {}
    assert "no host of the site keeps the change" in failed.value.why
