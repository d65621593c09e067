"""A run that has no rest is refused for the reason that holds, before any host is asked."""

from typing import cast

import pytest

from fleetctl.errors import InputError
from fleetctl.spec.inventory import Inventory
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.edges import Edges
from fleetctl.workflow.experiment import resume

NOBODY = cast("Edges", None)
NOWHERE = cast("Inventory", None)


def refusal(folder):
    with pytest.raises(InputError) as caught:
        resume(NOBODY, NOWHERE, folder)
    return caught.value


def test_a_run_of_another_kind_is_not_called_finished(tmp_path):
    refused = refusal(RunFolder.create(tmp_path, "r", {"kind": "aa"}))

    assert "`aa`" in refused.why
    assert "finished" not in refused.why


def test_a_finished_run_leads_to_its_report(tmp_path):
    folder = RunFolder.create(tmp_path, "r", {"kind": "experiment"})
    folder.record(0.0, "finished", verdict="reduced")

    refused = refusal(folder)

    assert refused.why == "it is finished"
    assert refused.next_step == "`fleetctl results show r` shows its report"
