"""What `plan` says of a matrix and its hosts is what the dealing it shows does."""

from __future__ import annotations

import pytest

from fleetctl.analysis.matrix_hosts import confounded_with_hosts
from fleetctl.workflow.matrix import order_on, sites_of_blocks, terms_of
from fleetctl.workflow.matrix_plan import host_notes
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
