"""Leases have names nobody trips over and lengths that end."""

from __future__ import annotations

import pytest

from fleetctl.transaction.lease import BadLease, LeaseRequest, grant


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "x" * 81, "a b", "a\n"])
def test_an_identifier_that_could_be_a_path_is_refused(name):
    with pytest.raises(BadLease):
        LeaseRequest(name, "run", "me@here", "p", "", 60)
    with pytest.raises(BadLease):
        LeaseRequest("lease", name, "me@here", "p", "", 60)


@pytest.mark.parametrize("length_s", [0, 0.5, -1, float("inf"), float("nan"), 8 * 24 * 3600])
def test_a_lease_that_ends_at_once_or_never_is_refused(length_s):
    with pytest.raises(BadLease):
        LeaseRequest("lease", "run", "me@here", "p", "", length_s)


def test_the_host_counts_from_its_own_clock():
    granted = grant(LeaseRequest("l", "r", "me@here", "p", "x.service", 60), now_s=1000)

    assert (granted.since_s, granted.until_s) == (1000, 1060)
