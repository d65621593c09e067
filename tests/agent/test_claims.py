"""Two state directories on one host see each other: nobody works on what somebody else holds."""

from __future__ import annotations

import json
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleetctl.agent import claims
from fleetctl.errors import LeaseHeld
from fleetctl.host.agent_client import Agent, new_id
from fleetctl.transaction.failure import LeaseTaken
from fleetctl.transaction.lease import LeaseRequest, grant
from tests.agent.conftest import Ground
from tests.agent.lab_host import UNIT, Host, connect_host


def lease(holder: str = "bob@laptop", unit: str = "") -> LeaseRequest:
    return LeaseRequest(new_id(), "run-2", holder, "another idea", unit, 60.0)


def second(ground: Ground) -> Agent:
    """Return the agent of somebody whose inventory names another state directory."""
    state = ground.root / "state2"
    state.mkdir(exist_ok=True, mode=0o700)
    if not (state / "agent").exists():
        shutil.copytree(ground.state / "agent", state / "agent")
    return Agent(ground.agent.transport, python=sys.executable, state_dir=str(state))


def apply_with(agent: Agent, ground: Ground) -> str:
    request = lease()
    agent.apply(request, new_id(), ground.steps()[:1], ground.contents())
    return request.id


def claims_of(ground: Ground) -> list[Path]:
    folders = (claims.ROOTS, *claims.EVERYBODYS)
    paths = [path for folder in folders if folder.is_dir() for path in folder.glob("*")]
    return [p for p in paths if p.is_file() and str(ground.root).encode() in p.read_bytes()]


def test_files_that_are_changed_under_another_state_directory_are_refused_by_name(ground):
    before = ground.look()
    held = ground.apply().granted.lease
    changed = ground.look()

    with pytest.raises(LeaseTaken, match=f"{ground.module} is held by ann@desk") as refused:
        apply_with(second(ground), ground)

    assert f"lease {held.id} in another state directory of this host, {ground.state}" in (
        refused.value.why
    )
    assert refused.value.lease == held
    assert ground.look() == changed
    assert second(ground).status().leases == ()
    ground.agent.restore(transaction="tx")
    second(ground).release(apply_with(second(ground), ground))
    assert ground.look() == before
    assert claims_of(ground) == []


def test_of_two_at_the_same_instant_one_works_at_most(ground):
    before = ground.look()
    agents = [ground.agent, second(ground)]

    def attempt(agent: Agent) -> str:
        try:
            return apply_with(agent, ground)
        except LeaseHeld:
            return ""

    with ThreadPoolExecutor(2) as pool:
        won = list(pool.map(attempt, agents))

    assert won.count("") >= 1
    for agent, lease_id in zip(agents, won, strict=True):
        if lease_id:
            agent.release(lease_id)
    assert ground.look() == before
    assert claims_of(ground) == []


def test_a_claim_whose_lease_is_gone_or_whose_boot_is_over_holds_nobody_up(ground):
    held = ground.apply().granted.lease
    (path,) = claims_of(ground)
    ground.agent.release(held.id)
    stale = json.dumps(
        {
            "lease": vars(held),
            "unit": "",
            "paths": [str(ground.module)],
            "state": str(ground.state),
            "boot_id": ground.edges.clock.boot_id(),
        }
    )
    claims.ROOTS.mkdir(exist_ok=True)
    path.write_text(stale)
    agent = second(ground)

    agent.release(apply_with(agent, ground))

    assert not path.exists()
    (ground.state / "leases" / f"{held.id}.json").write_bytes(b"{}")
    claims.ROOTS.mkdir(exist_ok=True)
    path.write_text(stale.replace(ground.edges.clock.boot_id(), "an earlier boot"))
    agent.release(apply_with(agent, ground))
    (ground.state / "leases" / f"{held.id}.json").unlink()


@pytest.mark.parametrize("what", ["noise", "link", "pipe", "directory", "no lease"])
def test_what_is_no_claim_is_left_alone_and_holds_nobody_up(ground, what):
    path = claims.EVERYBODYS[1] / f"{claims.PREFIX}{new_id()}"
    if what == "noise":
        path.write_bytes(b"\xff\x00 no json")
    elif what == "link":
        path.symlink_to(ground.script)
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        path.write_text(json.dumps({"lease": {"id": 1}, "paths": [str(ground.module)]}))
    try:
        ground.agent.release(apply_with(ground.agent, ground))
        assert os.path.lexists(path)
    finally:
        shutil.rmtree(path) if what == "directory" else path.unlink()


def forged(ground: Ground, **facts: object) -> str:
    """Return a claim of the module as somebody could write it by hand."""
    times = {"since_s": 0.0, "until_s": 1.0}
    told = {"id": "x", "run_id": "r", "holder": "eve", "purpose": "p", "unit": "", **times}
    boot_id = ground.edges.clock.boot_id()
    claim = {"lease": told, "unit": "", "paths": [str(ground.module)], "boot_id": boot_id}
    return json.dumps({**claim, "state": str(ground.root / "nowhere"), **facts})


@pytest.mark.parametrize(
    "state",
    ["/nul\0", "/\ud800", "/x" * 5000, "/" + "x" * 300],
    ids=["nul", "half", "long", "name"],
)
def test_a_claim_whose_state_directory_can_not_exist_holds_nobody_up(ground, state):
    path = claims.EVERYBODYS[1] / f"{claims.PREFIX}{new_id()}"
    path.write_text(forged(ground, state=state))
    try:
        ground.agent.release(apply_with(ground.agent, ground))
    finally:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("since", ["1" * 400, "1e400", "NaN", "-1", "1e30", '"1"', "null"])
def test_a_claim_of_a_time_that_no_calendar_has_holds_nobody_up(ground, since):
    state = ground.root / "theirs"
    (state / "leases").mkdir(parents=True)
    (state / "leases" / "x.json").touch()
    path = claims.EVERYBODYS[1] / f"{claims.PREFIX}{new_id()}"
    sound = forged(ground, state=str(state))
    path.write_text(sound)
    try:
        with pytest.raises(LeaseHeld):
            apply_with(ground.agent, ground)
        path.write_text(sound.replace('"since_s": 0.0', f'"since_s": {since}'))
        ground.agent.release(apply_with(ground.agent, ground))
    finally:
        path.unlink(missing_ok=True)


def test_a_claim_that_is_nested_too_deeply_to_be_read_holds_nobody_up(ground):
    path = claims.EVERYBODYS[1] / f"{claims.PREFIX}{new_id()}"
    path.write_text("[" * 100_000)
    try:
        ground.agent.release(apply_with(ground.agent, ground))
    finally:
        path.unlink()


def test_a_lease_whose_agent_was_killed_before_it_left_a_claim_has_one_with_its_next_change(ground):
    held = lease("ann@desk")
    ground.agent.acquire(held)
    (path,) = claims_of(ground)
    path.unlink()

    ground.agent.apply(held, new_id(), ground.steps()[:1], ground.contents())

    with pytest.raises(LeaseTaken, match="held by ann@desk"):
        apply_with(second(ground), ground)
    ground.agent.release(held.id)
    assert claims_of(ground) == []


def test_a_claim_names_every_file_of_a_large_tree(ground):
    held = lease("ann@desk")
    ground.agent.acquire(held)
    own = ground.edges.claims
    tree = [f"{ground.root}/{'d' * 80}/{number}.py" for number in range(15_000)]

    own.extend(held.id, tree)
    own.extend(held.id, [str(ground.module)])

    with pytest.raises(LeaseTaken, match="held by ann@desk"):
        apply_with(second(ground), ground)
    ground.agent.release(held.id)


def test_what_a_kill_left_of_a_claim_before_it_had_its_name_goes_with_the_next_lease(ground):
    claims.ROOTS.mkdir(exist_ok=True)
    left = claims.ROOTS / f".{claims.PREFIX}0"
    left.write_text(forged(ground, state=str(ground.state)))

    ground.agent.release(apply_with(ground.agent, ground))

    assert not left.exists()


@pytest.mark.parametrize("places", [claims.EVERYBODYS, ()])
def test_a_host_without_a_place_for_root_s_claims_gives_its_leases_all_the_same(
    ground, monkeypatch, places
):
    monkeypatch.setattr(claims, "ROOTS", Path("/proc/no such place/fleetctl"))
    monkeypatch.setattr(claims, "EVERYBODYS", places)
    held = grant(lease(), 0.0)

    ground.edges.claims.make(held, "")

    assert len(claims_of(ground)) == bool(places)
    ground.edges.claims.drop(held.id)
    assert claims_of(ground) == []


def test_a_forged_claim_ends_nobody_s_lease(ground):
    held = lease("ann@desk")
    ground.agent.acquire(held)
    forgery = claims.EVERYBODYS[1] / f"{claims.PREFIX}{new_id()}"
    other = second(ground)
    told = forged(ground, state=str(ground.root / "state2"), paths=[])
    forgery.write_text(told.replace('"x"', f'"{held.id}"'))

    other.release(lease_of(other))

    assert not forgery.exists()
    assert [path.name for path in claims_of(ground)] == [held.id]
    ground.agent.release(held.id)


def lease_of(agent: Agent) -> str:
    """Take a lease, and return its id."""
    request = lease()
    agent.acquire(request)
    return request.id


def test_what_others_put_under_the_name_of_a_claim_is_not_taken_for_it(ground):
    held = lease("ann@desk")
    ground.agent.acquire(held)
    name = f"{claims.PREFIX}{os.geteuid()}-{held.id}"
    forgery = claims.EVERYBODYS[-1] / name
    live = ground.root / "eve" / "leases" / f"{held.id}.json"
    live.parent.mkdir(parents=True)
    live.touch()
    told = forged(ground, state=str(ground.root / "eve"), paths=["/elsewhere"])
    forgery.write_text(told.replace('"x"', f'"{held.id}"'))
    try:
        ground.agent.apply(held, new_id(), ground.steps()[:1], ground.contents())
        with pytest.raises(LeaseTaken, match="held by ann@desk"):
            apply_with(second(ground), ground)
    finally:
        forgery.unlink(missing_ok=True)
    ground.agent.release(held.id)


def beside(host: Host, state_dir: str) -> Agent:
    return Agent(host.agent.transport, state_dir=state_dir)


@pytest.mark.lab
def test_a_unit_that_is_held_under_another_state_directory_is_refused(
    host_of_each_kind, lab_of_each_kind
):
    host = host_of_each_kind
    state = host.shell("mktemp -d").strip()
    other = beside(host, state)
    held = host.lease()
    host.agent.acquire(held)

    with pytest.raises(LeaseTaken, match=f"{UNIT} is held by {held.holder}"):
        other.acquire(lease(unit=UNIT))

    assert other.status().leases == ()
    neighbour = connect_host(lab_of_each_kind.lab, "lab-2")
    elsewhere = lease(unit=UNIT)
    neighbour.agent.acquire(elsewhere)
    neighbour.agent.release(elsewhere.id)
    neighbour.agent.forget()
    neighbour.agent.transport.close()
    host.agent.release(held.id)
    mine = lease(unit=UNIT)
    other.acquire(mine)
    with pytest.raises(LeaseTaken, match="held by bob@laptop"):
        host.agent.acquire(host.lease())
    other.release(mine.id)
    other.forget()
