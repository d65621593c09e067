"""The order of a matrix: complete replicates in blocks, drift spread over all cells."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fleetctl.analysis.matrix_order import (
    deal_replicates,
    fewest_restarts_order,
    seeded_order,
)

BLOCKS = st.dictionaries(st.sampled_from(["h200", "h100", "a100"]), st.integers(1, 9), min_size=1)


@given(runs=st.integers(1, 12), sites=BLOCKS)
def test_every_replicate_goes_to_one_block_in_proportion_to_its_sites(runs, sites):
    dealt = deal_replicates(runs, sites)

    assert sorted(run for found in dealt.values() for run in found) == list(range(runs))
    total = sum(sites.values())
    for block, found in dealt.items():
        assert abs(len(found) - runs * sites[block] / total) <= max(1, len(sites) - 1)


@given(cells=st.integers(2, 20), runs=st.integers(1, 5), seed=st.integers(0, 9), sites=BLOCKS)
def test_every_cell_is_run_once_in_every_replicate_and_baselines_bracket_a_block(
    cells, runs, seed, sites
):
    dealt = deal_replicates(runs, sites)
    order = seeded_order(cells, dealt, seed)

    assert Counter((one.cell, one.run) for one in order) == Counter(
        (cell, run) for cell in range(cells) for run in range(runs)
    )
    for block, found in dealt.items():
        own = [one for one in order if one.block == block]
        assert [one.run for one in own] == [run for run in found for _ in range(cells)]
        if own:
            assert own[0].cell == 0
            assert own[-1].cell == 0 or len(found) == 1


def test_the_order_follows_the_seed_and_differs_between_replicates():
    dealt = {"b": (0, 1, 2)}

    first, again, other = (seeded_order(12, dealt, seed) for seed in (1, 1, 2))

    assert first == again != other
    replicates = [[one.cell for one in first if one.run == run] for run in range(3)]
    assert replicates[0] != replicates[1] != replicates[2]


def test_fewest_restarts_keeps_services_together_and_goes_to_the_nearest():
    services = ["s0", "s3", "s1", "s0", "s2"]
    near = [0, 3, 1, 0, 2]
    distance = [[abs(a - b) for b in near] for a in near]

    order = fewest_restarts_order(services, distance, {"b": (0, 1)}, seed=3)

    assert [services[one.cell] for one in order] == ["s0"] * 4 + ["s1"] * 2 + ["s2"] * 2 + [
        "s3"
    ] * 2
    assert Counter((one.cell, one.run) for one in order) == Counter(
        (cell, run) for cell in range(5) for run in range(2)
    )
