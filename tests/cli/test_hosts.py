"""`fleetctl status` in words: who works on a host, what lies there, and since when."""

from __future__ import annotations

import pytest

from fleetctl.cli.hosts import _status_lines
from fleetctl.transaction.snapshot import HeldTransaction, Status


def kept(since_s: float) -> HeldTransaction:
    steps = ("replace /x",)
    return HeldTransaction(
        "t", "r1", "ann@desk", "fix", "u.service", "committed", since_s, steps, ()
    )


def test_a_host_without_anything_is_free():
    assert [*_status_lines(Status((), ()))] == ["free; nothing is held"]


@pytest.mark.parametrize(
    ("since_s", "told"), [(0.0, ""), (3600.0, ", since 1970-01-01 01:00:00 UTC")]
)
def test_a_kept_change_is_told_with_its_age_and_that_nobody_works_there(since_s, told):
    assert [*_status_lines(Status((), (kept(since_s),)))] == [
        "free; still held here:",
        f"committed change of run r1 by ann@desk (fix){told}",
        "  replace /x",
    ]
