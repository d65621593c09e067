"""Units in many shapes, each edited in one way; systemd itself says what its server then gets.

units.json holds the files of each host: order of drop-ins over all directories, masks, templates,
resets, quoting, specifiers, environment files, commands and scripts that set the flag themselves.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleetctl.environment.local import edit_local_unit, write_edits
from fleetctl.errors import EditRefused

CASES = json.loads(Path(__file__).with_name("units.json").read_text(encoding="utf-8"))
EVERY = ("0", None, 'it\'s "$x" `y`\\')
ONE_WAY_EACH = [(case, EVERY[number % 3]) for number, case in enumerate(CASES)]
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.mark.parametrize(
    ("case", "wanted"), ONE_WAY_EACH, ids=[case["name"] for case, _ in ONE_WAY_EACH]
)
def test_a_unit_of_this_shape_gives_its_server_what_was_asked(case, wanted, judge, systemd):
    def edit(root: str, unit: str, edits: dict, scope: str) -> None:
        try:
            write_edits(edit_local_unit(Path(root), unit, edits, user=scope == "user"))
        except EditRefused as error:
            raise judge.S.Refusal(error.code) from error

    effective = {"effective": {"A": wanted}, "unchanged_elsewhere": True}
    asked = {
        "id": case["name"],
        "title": case["name"],
        "kind": "unit",
        "edit": {"A": wanted},
        "expect": effective,
    }
    result = judge.check({**asked, **case, "idempotent": True}, edit, systemd)

    assert result["status"] == "PASS", "\n".join(result["why"])
