"""A line torn at any byte: the host is as before or as planned, and comes back from both."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import FleetError
from fleetctl.host.agent_client import Agent
from fleetctl.host.connect import connect
from fleetctl.host.endpoint import Backend
from fleetctl.host.handshakes import HandshakeGate
from fleetctl.transaction.lease import LeaseRequest
from tests.agent.bad_link import BadLink
from tests.agent.conftest import Ground
from tests.host.sshd import SSHD, Sshd, Sshds, make_key

NEVER = 1 << 40
TO_HOST, BACK = 0, 1


@pytest.fixture(scope="module")
def sshd(tmp_path_factory) -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip("no sshd on this machine: install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder = tmp_path_factory.mktemp("sshd")
    servers = Sshds(folder, make_key(folder / "id_ed25519"))
    yield servers.start()
    servers.stop()


@dataclasses.dataclass(frozen=True)
class Asked:
    """One apply: its identifiers, for asking again, and what it was told."""

    lease: LeaseRequest
    transaction: str
    error: FleetError | None


def apply_over(
    ground: Ground, sshd: Sshd, cut_after: tuple[int, int], seed: int = 1
) -> tuple[Asked, list[int]]:
    """Apply over a bad line; return what was told, and how many bytes went through."""
    lease, transaction = ground.lease(), f"tx-{seed}-{min(cut_after)}"
    with BadLink(sshd.port, cut_after=cut_after, seed=seed) as link:
        known = sshd.folder / "known_hosts_of_the_link"
        known.write_text(sshd.known_hosts.read_text().replace(str(sshd.port), str(link.port)))
        endpoint = sshd.endpoint(port=link.port, known_hosts_files=(known,))

        def apply() -> None:
            transport = connect(
                endpoint, backend=Backend.PARAMIKO, gate=HandshakeGate(), clock=SystemClock()
            )
            try:
                agent = Agent(transport, python=sys.executable, state_dir=str(ground.state))
                agent.apply(lease, transaction, ground.steps(), ground.contents(), deadline_s=30)
            finally:
                transport.close()

        return Asked(lease, transaction, told(apply)), link.carried


def told(act: Callable[[], object]) -> FleetError | None:
    """Return what an act failed with; None where it says that it was done."""
    try:
        act()
    except FleetError as error:
        return error
    return None


def settle(ground: Ground, before: dict[str, object], asked: Asked) -> None:
    """Ask again over a good line, then roll back: never anything but before and planned."""
    refused = told(
        lambda: ground.agent.apply(
            asked.lease, asked.transaction, ground.steps(), ground.contents()
        )
    )
    assert refused is None or "tried before" in refused.what
    assert refused is not None or ground.import_value() == "new"
    ground.agent.restore(transaction=asked.transaction)
    for held in ground.agent.status().leases:
        ground.agent.release(held.lease.id)
    assert ground.look() == before
    assert ground.agent.status().transactions == ()


SHARES = (0.5, 0.9, 0.99)


@pytest.mark.parametrize("way", [TO_HOST, BACK], ids=["to the host", "back"])
def test_a_line_cut_at_any_byte_leaves_a_host_as_before_or_as_planned(ground, sshd, way):
    before = ground.look()
    whole, carried = apply_over(ground, sshd, (NEVER, NEVER))
    assert whole.error is None
    planned = {name: facts for name, facts in ground.look().items() if "__pycache__" not in name}
    settle(ground, before, whole)

    for number, share in enumerate(SHARES):
        cut = [NEVER, NEVER]
        cut[way] = int(carried[way] * share)
        asked, _ = apply_over(ground, sshd, (cut[0], cut[1]), seed=number)
        if asked.error is None:
            now = {n: facts for n, facts in ground.look().items() if "__pycache__" not in n}
            assert set(now) == set(planned)
            assert ground.import_value() == "new"
        settle(ground, before, asked)
