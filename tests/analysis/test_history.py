"""Stored A/A runs lend their dispersion to matching experiments only."""

import pytest

from fleetctl.analysis.counts import arm
from fleetctl.analysis.history import AaRecord, pool, records_from_json, records_to_json
from fleetctl.errors import InputError


def record(name, bad, host_class="h200", workload="w"):
    return AaRecord(name, host_class, workload, arm(name, bad, [40] * len(bad)))


def test_only_matching_records_are_pooled_and_they_are_named():
    records = [
        record("mon", [3, 9, 0, 12]),
        record("tue", [2, 1, 7, 2]),
        record("other host", [0, 20], host_class="a100"),
        record("other workload", [0, 20], workload="v"),
    ]

    found = pool(records, host_class="h200", workload_sha256="w")

    assert found.records == ("mon", "tue")
    assert found.df == 6


def test_records_of_different_rates_are_not_taken_for_dispersion():
    apart = [record("slow day", [1, 1, 1]), record("bad day", [20, 20, 20])]

    assert pool(apart, host_class="h200", workload_sha256="w").phi == 0.0


def test_records_that_tell_nothing_are_left_out():
    useless = [record("one run", [5]), record("clean", [0, 0]), record("all bad", [40, 40])]

    assert pool(useless, host_class="h200", workload_sha256="w") is None


def test_records_survive_being_written_and_read():
    records = (record("mon", [3, 9]),)

    assert records_from_json(records_to_json(records)) == records


GOOD = records_to_json([record("mon", [3, 9])])


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([], "the file"),
        ({"schema": "fleetctl.history/9"}, "the file"),
        ({**GOOD, "records": {}}, "`records`"),
        ({**GOOD, "records": [{"name": "x"}]}, r"records\[0\]"),
        ({**GOOD, "records": [*GOOD["records"], 7]}, r"records\[1\]"),
        ({**GOOD, "records": [{**GOOD["records"][0], "runs": [{"bad": 1}]}]}, r"records\[0\]"),
        (
            {**GOOD, "records": [{**GOOD["records"][0], "runs": [{"bad": 9, "sessions": 1}]}]},
            r"records\[0\]",
        ),
        (
            {**GOOD, "records": [{**GOOD["records"][0], "runs": [{"bad": True, "sessions": 1}]}]},
            r"records\[0\]",
        ),
    ],
)
def test_a_malformed_history_is_refused_with_its_place(value, where):
    with pytest.raises(InputError, match=where):
        records_from_json(value)
