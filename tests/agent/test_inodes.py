"""A file system without free inodes: those that the undo needs were held before the change."""

from __future__ import annotations

import pytest

from fleetctl.host.agent_client import new_id
from fleetctl.transaction.step import RemoveFile
from tests.agent.lab_host import sha256

pytestmark = pytest.mark.lab

PLACE = "/srv/dsv4/few"
# three modules, each with the bytecode of two levels of optimisation, and two files to be removed
MAKE = f"""
set -e
mkdir {PLACE}; mount -t tmpfs -o nr_inodes=60 few {PLACE}; cd {PLACE}
for i in 1 2 3; do
  echo "x = $i" >m$i.py; /usr/bin/python3 -m py_compile m$i.py
  /usr/bin/python3 -O -m py_compile m$i.py
done
echo old >one; echo old >two
"""
LOOK = f"cd {PLACE}; find . -type f ! -path './fill/*' -printf '%p %m %T@ ' -exec sha256sum {{}} +"
FILL = f"cd {PLACE}; mkdir fill; i=0; while touch fill/$i 2>/dev/null; do i=$((i+1)); done; df -i ."


@pytest.fixture
def few(systemd_host):
    """lab-1 with a file system of sixty inodes; a function looks at it."""
    systemd_host.shell(MAKE)
    yield lambda: sorted(systemd_host.shell(LOOK).split())
    systemd_host.shell(f"umount {PLACE}; rmdir {PLACE}")


def test_everything_comes_back_where_no_inode_is_free(systemd_host, few):
    host, before = systemd_host, few()
    changes = [host.write(f"{PLACE}/m{number}.py", b"x = 0\n") for number in (1, 2, 3)]
    removed = [RemoveFile(f"{PLACE}/{name}", sha256(b"old\n")) for name in ("one", "two")]
    steps = [*(step for step, _ in changes), *removed]
    transaction = new_id()
    host.agent.apply(host.lease(), transaction, steps, changes[0][1])
    full = host.shell(FILL)

    host.agent.restore(transaction=transaction)

    assert "100%" in full
    assert few() == before
    assert host.shell(f"find {PLACE} -name '.fleetctl-*'") == ""
