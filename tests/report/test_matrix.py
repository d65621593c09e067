"""A matrix in words and tables."""

import json
from dataclasses import replace

import pytest

from fleetctl.analysis.conjunction import best_conjunction
from fleetctl.analysis.counts import ArmCounts, Run, arm
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.matrix_effects import Factor, MatrixCell, matrix_effects
from fleetctl.report.matrix import MatrixReport, as_json, headline, markdown, render, sentence
from fleetctl.report.matrix_next import next_steps

PATCH = Factor("indexer", ("transient", "persistent"))
CLONES = Factor("clones", ("off", "on"), observer=True)
LEVELS = [("transient", "off"), ("persistent", "off"), ("transient", "on"), ("persistent", "on")]


def report(*runs, interactions=(), factors=(PATCH, CLONES), **more):
    cells = tuple(
        MatrixCell({"indexer": a, "clones": b}, arm("x", bad, [40] * len(bad)), "gpu-1")
        for (a, b), bad in zip(LEVELS, runs, strict=True)
    )
    effects = matrix_effects(factors, cells, interactions)
    return MatrixReport("m", factors, cells, effects, **more)


def test_a_factor_that_matters_is_named_with_what_it_does():
    found = report([12, 13], [1, 0], [6, 5], [0, 1])

    patch, clones = found.effects.effects
    assert headline(found) == (
        "MATRIX: the rate moves with indexer=persistent (Holm-adjusted p below 0.05)."
    ) or "clones=on" in headline(found)
    assert sentence(patch).startswith(
        "indexer=persistent: lowers the rate (22.5% -> 1.2%, odds x0."
    )
    assert "clones=on" in sentence(clones)


def test_an_observer_that_matters_taints_what_was_measured_with_it():
    found = report([12, 13], [11, 12], [1, 0], [0, 1])

    assert sentence(found.effects.effects[1]).endswith(
        "it is an observer, so what was measured with it on can't be trusted"
    )


def test_a_factor_that_raises_the_rate_is_said_to_raise_it():
    found = report([1, 0], [12, 13], [0, 1], [11, 12])

    assert "indexer=persistent: raises the rate" in render(found)


def test_what_brings_the_fault_is_confirmed_against_a_control_that_shows_it():
    alone = report([1, 0], [12, 13], [0, 1], [11, 12])
    both = report([0, 0], [0, 0], [0, 0], [12, 13])
    both = replace(both, explained=best_conjunction(both.factors, both.cells))
    mends = report([12, 13], [1, 0], [11, 12], [0, 1])

    told = [" ".join(next_steps(one)) for one in (alone, both, mends)]

    assert "control has indexer=persistent, so that it shows the fault" in told[0]
    assert "control has indexer=persistent with clones=on, so" in told[1].replace(
        "clones=on with indexer=persistent", "indexer=persistent with clones=on"
    )
    assert "with the baseline as its control" in told[2]


def test_factors_that_do_nothing_are_no_proof_of_nothing():
    found = report([6, 5], [5, 6], [6, 6], [5, 5])

    assert headline(found) == (
        "MATRIX: no factor is shown to move the rate; that is no proof that none does."
    )
    assert "indexer=persistent: not shown to matter" in render(found)


def test_an_interaction_is_told_as_a_combination():
    found = report([9, 9], [9, 9], [9, 9], [0, 0], interactions=[("indexer", "clones")])

    told = sentence(found.effects.effects[2])
    assert told.startswith(
        "indexer=persistent with clones=on: together they make fewer sessions bad than their two "
        "effects add up to (neither -> both 22.5% -> 0%; odds with both x0."
    )
    assert "the rate" not in told


def test_a_ratio_of_odds_ratios_is_never_put_as_the_odds_of_the_rates_beside_it():
    found = report([6, 7], [14, 13], [13, 14], [7, 8], interactions=[("indexer", "clones")])

    told = sentence(found.effects.effects[2])
    assert "fewer sessions bad" in told
    assert "neither -> both 16.2% -> 18.8%; odds with both x0." in told
    assert "of what each change alone would add up to" in told
    close = report([6, 7], [7, 7], [7, 7], [7, 8], interactions=[("indexer", "clones")])
    assert "each is not shown to change what the other does (neither -> both 16.2% -> 18.8%" in (
        sentence(close.effects.effects[2])
    )


@pytest.mark.parametrize(
    ("runs", "direction"), [(([4], [0], [4], [0]), "lowers"), (([0], [4], [0], [4]), "raises")]
)
def test_few_bad_sessions_are_told_by_exact_tables(runs, direction):
    found = report(*runs)

    assert sentence(found.effects.effects[0]).startswith(f"indexer=persistent: {direction}")
    assert "exact tables, stratified" in render(found)


def test_a_matrix_without_any_bad_session_says_nothing():
    found = report([0], [0], [0], [0])

    assert "nothing can be said" in sentence(found.effects.effects[0])


def test_cells_are_shown_with_rates_and_a_cell_without_sessions_has_none():
    found = report([12, 13], [1, 0], [6, 5], [0, 1])
    empty = MatrixCell({"indexer": "x", "clones": "off"}, ArmCounts("x", (Run(0, 0),)))
    told = render(MatrixReport("", found.factors, (*found.cells, empty), found.effects))

    assert "transient   off     gpu-1  2     25/80 = 31.2%" in told
    assert "0/0 = n/a" in told
    assert "Firth logit on runs" in told
    assert max(len(line) for line in told.splitlines()) <= 100


def test_a_model_that_failed_is_told_and_the_cells_are_still_shown():
    whole = report([12, 13], [1, 0], [6, 5], [0, 1])
    failed = MatrixReport("m", whole.factors, whole.cells, None, failure="it did not converge")

    assert headline(failed) == "MATRIX: no effect could be estimated: it did not converge."
    assert "25/80" in render(failed)
    assert as_json(failed)["effects"] == []
    assert as_json(failed)["method"] is None


def test_the_json_keeps_numbers_sentences_and_trials():
    found = report([12, 13], [1, 0], [6, 5], [0, 1])

    value = json.loads(json.dumps(as_json(found), allow_nan=False))

    assert value["schema"] == "fleetctl.matrix/1"
    assert value["cells"][0]["trials"] == ["", ""]
    assert value["effects"][0]["sentence"] == sentence(found.effects.effects[0])
    assert value["effects"][0]["p"] == pytest.approx(found.effects.effects[0].p)


@pytest.mark.parametrize("few", [True, False])
def test_a_matrix_names_the_a_a_runs_whose_dispersion_it_used(few):
    history = Dispersion(0.5, 2, ("20261130-aa/lab",))
    runs = [[2, 1], [0, 0], [1, 1], [0, 0]] if few else [[12, 13], [1, 0], [6, 5], [0, 1]]
    with_it, without = report(*runs, history=history), report(*runs)

    named = "history used: dispersion 0.50 on 2 df from stored A/A runs: 20261130-aa/lab"
    assert named in render(with_it)
    assert named in markdown(with_it).replace("\\", "")
    assert as_json(with_it)["history"]["records"] == ("20261130-aa/lab",)
    assert "history used" not in render(without)
    assert as_json(without)["history"] is None


def test_exact_tables_say_that_no_interaction_was_tested():
    few = render(report([2, 1], [0, 0], [1, 1], [0, 0], interactions=[("indexer", "clones")]))
    many = render(report([12, 13], [1, 0], [6, 5], [0, 1], interactions=[("indexer", "clones")]))

    assert "no interaction is tested with so few" in " ".join(few.split())
    assert "no interaction is tested" not in " ".join(many.split())
