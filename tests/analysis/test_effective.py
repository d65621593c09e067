"""What really differs between two arms."""

from dataclasses import replace

from fleetctl.analysis.effective import UNSET, Difference, Effective, Kind, differences

CONTROL = Effective(
    patches={"indexer": "aa"},
    processes=({"GE_DIFF": "0", "BF16": "1"}, {"GE_DIFF": "0", "BF16": "1"}),
    workload_sha256="w",
    host_class="h200",
    image="i",
)


def test_the_same_facts_differ_in_nothing():
    assert differences(CONTROL, CONTROL) == ()
    assert differences(Effective(), Effective()) == ()


def test_every_kind_of_difference_is_found():
    other = Effective(
        patches={"indexer": "bb", "cache": "cc"},
        processes=({"GE_DIFF": "1"}, {"GE_DIFF": "1"}),
        observers=frozenset({"canary"}),
        workload_sha256="v",
        host_class="a100",
        image="j",
    )

    found = differences(CONTROL, other, observers={"GE_DIFF"})

    assert set(found) == {
        Difference(Kind.PATCH, "indexer", "aa", "bb"),
        Difference(Kind.PATCH, "cache", UNSET, "cc"),
        Difference(Kind.FLAG, "BF16", "1", UNSET),
        Difference(Kind.OBSERVER, "GE_DIFF", "0", "1"),
        Difference(Kind.OBSERVER, "canary", "off", "on"),
        Difference(Kind.WORKLOAD, "workload", "w", "v"),
        Difference(Kind.HOST_CLASS, "host class", "h200", "a100"),
        Difference(Kind.IMAGE, "image", "i", "j"),
    }


def test_a_patch_that_only_looks_is_an_observer():
    probed = replace(CONTROL, patches={"indexer": "aa", "probe": "pp"})

    (found,) = differences(CONTROL, probed, observers=["probe"])

    assert found.kind is Kind.OBSERVER


def test_processes_of_one_arm_that_disagree_are_mixed():
    torn = replace(CONTROL, processes=({"GE_DIFF": "0", "BF16": "1"}, {"BF16": "1"}))

    (found,) = differences(CONTROL, torn)

    assert found == Difference(Kind.MIXED, "GE_DIFF", "0", f"{UNSET} or 0")
