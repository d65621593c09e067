"""What `plan` says of a matrix and its hosts is what the dealing it shows does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fleetctl.analysis.matrix_hosts import confounded_with_hosts
from fleetctl.plan.jit import ArmCaches
from fleetctl.transaction.snapshot import PathState
from fleetctl.workflow.matrix import order_on, sites_of_blocks, terms_of
from fleetctl.workflow.matrix_plan import files_that_cells_change, host_notes
from fleetctl.workflow.prepare import HostPlan
from fleetctl.workflow.site import named_sites
from tests.workflow.matrices import asked, fleet

RULES = (
    "",
    'interactions = [["keys", "overlap"]]',
    'exclude = [{ keys = "fp8", overlap = "off" }]',
)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("hosts", [1, 2, 3, 4])
def test_exactly_what_this_dealing_loses_is_named_and_no_more_is_claimed(
    tmp_path, rules, runs, hosts
):
    matrix = asked(tmp_path, rules=rules, runs=runs)
    sites = named_sites(fleet(hosts), "fleet")
    blocks = sites_of_blocks(sites)
    lost = confounded_with_hosts(order_on(matrix, sites), terms_of(matrix), blocks)

    notes = list(host_notes(matrix, sites))

    assert len(notes) == len(lost)
    for note, (block, terms) in zip(notes, lost.items(), strict=True):
        names = ", ".join(" x ".join(term) for term in terms)
        assert note.startswith(f"{names} can't be told from the hosts of {block} as the cells are")
        assert "however" not in note
    assert hosts > 1 or not notes


def test_a_directory_lent_to_several_cells_is_one_and_no_file_that_cells_change():
    kinds = {"/s.sh": "file", "/new.py": "absent", "/tmp": "directory", "/tmp/own": "absent"}
    own = ArmCaches({"CACHE": "/tmp/own"}, {})
    touched = {path: PathState(path, path, kind) for path, kind in kinds.items()}
    host = HostPlan(SimpleNamespace(name="h"), None, touched, {}, {}, {"a": own, "b": own})

    found = files_that_cells_change([SimpleNamespace(hosts=(host,))])

    assert found == {"h": ("/s.sh", "/new.py")}
    assert host.lent == ("/tmp/own",)
