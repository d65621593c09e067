"""What the tests of this folder share: the real parser, and bash with stub servers."""

from __future__ import annotations

import pytest

from fleetctl.environment.shell.parser import Parser, system_parser


@pytest.fixture(scope="session")
def parser() -> Parser:
    """Shfmt and bash of this machine."""
    return system_parser()
