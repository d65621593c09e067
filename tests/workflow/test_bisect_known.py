"""What a search knew when it began, which a resumed one knows, too."""

from types import SimpleNamespace

import pytest

from fleetctl.analysis.bisection_rates import RHO_PRIOR, RHOS
from fleetctl.errors import InputError
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.bisect_known import known_at_start
from tests.workflow.searches import JOB

LABELS = ("a", "b")


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path, "r", {})


@pytest.fixture
def held():
    entry = SimpleNamespace(host=SimpleNamespace(host_class="c"))
    return SimpleNamespace(job=JOB, plan=SimpleNamespace(site=SimpleNamespace(entry=entry)))


def test_a_resumed_search_knows_what_it_knew_at_its_start(folder, held):
    first = known_at_start(folder, held, LABELS)

    assert first.rho == RHO_PRIOR
    assert known_at_start(folder, held, LABELS) == first


def test_a_search_that_an_older_version_began_goes_on_with_the_correlations_it_weighed(
    folder, held
):
    folder.write_json("search.json", {"labels": LABELS, "rho": [0.7, 0.1, 0.1, 0.1], "ids": []})

    known = known_at_start(folder, held, LABELS)

    assert len(known.rho) == len(RHOS)
    assert known.rho[:4] == (0.7, 0.1, 0.1, 0.1)
    assert sum(known.rho) == pytest.approx(1.0)


def test_other_changes_than_at_the_start_are_refused(folder, held):
    known_at_start(folder, held, LABELS)

    with pytest.raises(InputError, match="not the one that the search began with"):
        known_at_start(folder, held, ("a", "c"))
