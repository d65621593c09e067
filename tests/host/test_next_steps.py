"""What the SSH errors tell people to write into the inventory can be written there."""

from __future__ import annotations

import re
from pathlib import Path

import fleetctl.host
from fleetctl.spec.inventory import Host

SOURCES = sorted(Path(fleetctl.host.__file__).parent.glob("*.py"))


def test_next_steps_name_only_options_and_keys_that_exist():
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)

    assert not re.findall(r"`--[a-z-]+[^`]*`", text)  # no command has options of the connection
    keys = re.findall(r"(?:use|one with) `([a-z_]+)(?: = [^`]*)?`", text)
    assert {"transport", "identity"} <= set(keys) <= set(Host.model_fields)
