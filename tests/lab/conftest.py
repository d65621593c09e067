"""Fixtures for what only hosts of namespaces, or only hosts of processes, do."""

from __future__ import annotations

import pytest

from fleetctl.lab import Kind


@pytest.fixture
def namespace_lab(request, permitted_kinds):
    """A lab of two namespace hosts for the session; skipped where they are not permitted."""
    if Kind.NAMESPACES not in permitted_kinds:
        pytest.skip("this machine does not permit hosts of namespaces")
    return request.getfixturevalue("lab_hosts")


@pytest.fixture(scope="module")
def process_lab(labs, permitted_kinds):
    """A lab of one process host for the tests of a module."""
    return labs.up(1, kind=Kind.PROCESSES)
