"""Stored A/A runs lend their dispersion to matching experiments only."""

import json
from dataclasses import replace

import pytest

from fleetctl.analysis.counts import arm
from fleetctl.analysis.history import (
    AaRecord,
    minutes_per_run,
    pool,
    record_to_json,
    records_from_text,
)
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


def test_minutes_are_those_of_the_matching_runs():
    timed = [
        replace(record("mon", [3, 9]), minutes_per_run=2.0),
        replace(record("tue", [1, 2, 3, 4]), minutes_per_run=5.0),
        record("not noted", [5, 5]),
        replace(record("other host", [0, 20], host_class="a100"), minutes_per_run=60.0),
    ]

    assert minutes_per_run(timed, host_class="h200", workload_sha256="w") == 4.0
    assert minutes_per_run(timed, host_class="l4", workload_sha256="w") is None


def text_of(*values):
    return "\n".join(map(json.dumps, values))


def test_records_survive_being_written_and_read():
    both = replace(record("wed", [1, 2]), failures=arm("wed", [4, 2], [40, 40]))
    records = (record("mon", [3, 9]), replace(record("tue", [1]), minutes_per_run=1.5), both)

    assert records_from_text(text_of(*map(record_to_json, records))) == records
    assert records_from_text("\n\n") == ()


GOOD = record_to_json(record("mon", [3, 9]))


@pytest.mark.parametrize(
    "wrong",
    [
        "{torn",
        "[" * 100_000,
        "7",
        "[]",
        text_of({**GOOD, "schema": "fleetctl.history/9"}),
        text_of({"schema": GOOD["schema"], "name": "x"}),
        text_of({**GOOD, "runs": [{"bad": 1}]}),
        text_of({**GOOD, "runs": [{"bad": 9, "sessions": 1}]}),
        text_of({**GOOD, "runs": [{"bad": True, "sessions": 1}]}),
        text_of({**GOOD, "runs": {}}) + "x",
        text_of({**GOOD, "minutes_per_run": "soon"}),
        text_of({**GOOD, "runs": [{"bad": 1, "failed": 3.5, "sessions": 9}]}),
    ],
)
def test_a_malformed_history_is_refused_with_its_place(wrong):
    with pytest.raises(InputError, match="line 2"):
        records_from_text(f"{text_of(GOOD)}\n{wrong}\n")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({**GOOD, "schema": "x/9"}, 'its schema is "x/9", not "fleetctl.history/1"'),
        ({**GOOD, "runs": [{"bad": True, "sessions": 1}]}, "true is not a whole number"),
        ({"schema": GOOD["schema"], "name": "x"}, 'it has no "runs"'),
    ],
)
def test_what_is_wrong_with_a_history_is_told_as_json_has_it(wrong, why):
    with pytest.raises(InputError) as refused:
        records_from_text(text_of(wrong))

    assert refused.value.why == why


def test_a_record_of_before_failures_were_counted_lends_them_nothing():
    old = record("mon", [3, 9, 0])
    new = replace(record("tue", [3, 3, 3]), failures=arm("tue", [20, 3, 9], [40] * 3))
    by = {"host_class": "h200", "workload_sha256": "w"}

    assert pool([old], **by, metric="failures") is None
    assert pool([old, new], **by, metric="failures").records == ("tue",)
    assert pool([old, new], **by).records == ("mon", "tue")
