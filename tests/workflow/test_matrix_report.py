"""From what a campaign measured to its report."""

import json

import pytest
import typer

from fleetctl.analysis.matrix_effects import matrix_effects
from fleetctl.cli import matrix as cli_matrix
from fleetctl.errors import ExitCode, InputError
from fleetctl.report.matrix import as_json, markdown, render
from fleetctl.store.campaign import CampaignState, RunPhase, RunState
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.campaign import CampaignEnd
from fleetctl.workflow.campaign_status import status_json, status_lines
from fleetctl.workflow.matrix import cell_runs
from fleetctl.workflow.matrix_report import counted_of, report_matrix
from tests.workflow.matrices import asked, fleet, result_of

BOTH = "keys=fp8,overlap=off"
RATES = {"keys=bf16,overlap=on": 14}
ALIKE = dict.fromkeys([*RATES, BOTH], 5)
INTERACTION = 'interactions = [["keys", "overlap"]]'


def report_of(folder, *, sites=("h1", "h2"), epochs=None, runs=4, states=(), **more):
    matrix = asked(folder, rules=INTERACTION, runs=runs)
    every = cell_runs(matrix, fleet())
    results = [
        result_of(
            run,
            sites[(run.position + run.run) % len(sites)],
            epoch=(epochs or {}).get(run.run, "boot"),
            bad=RATES.get(run.cell, run.position % 2),
            **more,
        )
        for run in every
    ]
    state = CampaignState(states or tuple(RunState(run, RunPhase.DONE, "h1") for run in every))
    return report_matrix(matrix, state, counted_of(state, results), run_id="r")


def test_the_planted_combination_is_named_in_a_plain_sentence(tmp_path):
    report = report_of(tmp_path)
    told = " ".join(render(report).split())

    assert "MATRIX: the rate moves with keys=fp8, overlap=off" in told
    assert "keys x overlap explains it: keys=bf16 with overlap=on has 35%" in told
    assert "██ 35%" in told
    assert "confirm keys=fp8 by itself" in told
    assert "blocks are each host" in told


def test_sessions_without_what_was_asked_for_are_told_beside_the_rates(tmp_path):
    silent = report_of(tmp_path)
    report = report_of(tmp_path, counts={"leak": 1, "no_tool": 2, "no_answer": 3, "done": 34})

    assert not any("asked for" in note for note in silent.notes)
    assert [note for note in report.notes if "asked for" in note] == [
        "sessions without the call or the answer that was asked for (no_tool, no_answer), which a "
        "model may do by itself and which are not in the rates: 20/160 in keys=bf16,overlap=off, "
        "20/160 in keys=bf16,overlap=on, 20/160 in keys=fp8,overlap=off, and some in 1 more"
    ]


def test_a_host_that_was_booted_in_between_is_two_blocks(tmp_path):
    report = report_of(tmp_path, epochs={0: "one", 1: "one", 2: "two", 3: "two"}, runs=4)

    assert report.effects.blocked_by == "host and boot"
    assert {cell.block for cell in report.cells} == {"h1", "h2"}


def test_cells_that_only_one_host_has_are_compared_over_equal_hosts(tmp_path):
    report = report_of(tmp_path, sites=("h1", "h2", "h3", "h4"), runs=1)

    assert report.effects.blocked_by == "set of equal hosts"


def test_without_an_answer_for_interactions_each_factor_is_judged_all_the_same(
    tmp_path, monkeypatch
):
    from fleetctl.workflow import matrix_report as module

    def no_interactions(factors, cells, interactions=(), history=None):
        if interactions:
            raise InputError("it did not converge", why="no finite answer", next_step="more runs")
        return matrix_effects(factors, cells, interactions, history)

    monkeypatch.setattr(module, "matrix_effects", no_interactions)
    report = report_of(tmp_path)
    told = " ".join(render(report).split())

    assert "MATRIX: the rate moves with keys=fp8, overlap=off" in told
    assert [len(effect.term) for effect in report.effects.effects] == [1, 1]
    assert "each factor is judged without them: it did not converge: no finite answer" in told


def test_a_matrix_without_any_effect_says_why_and_still_what_explains_its_cells(
    tmp_path, monkeypatch
):
    from fleetctl.workflow import matrix_report as module

    def nothing(*_):
        raise InputError("it did not converge", why="no finite answer", next_step="more runs")

    monkeypatch.setattr(module, "matrix_effects", nothing)
    report = report_of(tmp_path)
    told = " ".join(render(report).split())

    assert "no effect could be estimated: it did not converge: no finite answer." in told
    assert "keys x overlap explains it: keys=bf16 with overlap=on has 35%" in told
    assert as_json(report)["explained"]["bad_share"] > 0.8
    assert as_json(report)["failure"] == "it did not converge: no finite answer"


@pytest.mark.parametrize(
    ("bad", "together", "code", "told"),
    [
        (RATES, False, ExitCode.OK, "the rate moves with"),
        ({}, False, ExitCode.INCONCLUSIVE, "no factor is shown to move the rate"),
        (
            ALIKE,
            True,
            ExitCode.INCONCLUSIVE,
            "no effect could be estimated: some effects can't be told",
        ),
    ],
    ids=["something is shown", "nothing is shown", "only the baseline and its opposite counted"],
)
def test_a_matrix_that_shows_nothing_is_inconclusive(tmp_path, capsys, bad, together, code, told):
    matrix = asked(tmp_path, runs=4)
    every = cell_runs(matrix, fleet())
    kept = [run for run in every if not together or run.cell in (every[0].cell, BOTH)]
    results = tuple(result_of(run, "h1", bad=bad.get(run.cell, 1)) for run in kept)
    state = CampaignState(tuple(RunState(run, RunPhase.DONE, "h1") for run in kept))
    folder = RunFolder.create(tmp_path / "runs", "r", {"kind": "matrix"})
    end = CampaignEnd(folder, state, results, (), None)
    ended = ExitCode.OK

    try:
        cli_matrix._finish(matrix, end, tmp_path / "runs", 1.0, as_json=False)
    except typer.Exit as exit_:
        ended = exit_.exit_code

    assert ended == code
    assert told in " ".join(capsys.readouterr().out.split())


def test_a_trial_that_was_not_exercised_says_nothing(tmp_path):
    report = report_of(tmp_path, missed_triggers=("the largest batch was 1",))

    assert report.cells == ()
    assert report.effects.effects[0].p is None
    assert any("says nothing: the largest batch was 1" in note for note in report.notes)
    assert render(report)


def test_cells_that_ran_the_same_code_with_the_same_flags_are_named(tmp_path):
    report = report_of(tmp_path, processes=({"KEYS": "1"},))

    assert any("ran the same code with the same flags" in note for note in report.notes)


def test_what_failed_what_is_left_and_who_was_set_aside_are_in_every_form(tmp_path):
    matrix = asked(tmp_path)
    first, second, *rest = cell_runs(matrix, fleet())
    state = CampaignState(
        (
            RunState(first, RunPhase.FAILED, "h2", why="it never answered"),
            RunState(second, RunPhase.WAITING),
            *(RunState(run, RunPhase.DONE, "h1") for run in rest),
        ),
        {"h2": "it is not as it was found"},
    )
    counted = counted_of(state, [result_of(run, "h1") for run in rest])
    report = report_matrix(matrix, state, counted, run_id="r")

    for told in (render(report), markdown(report), json.dumps(as_json(report))):
        flat = " ".join(told.replace("\\", "").split())
        assert "it never answered" in flat
        assert "it is not as it was found" in flat
        assert "fleetctl matrix --resume r" in flat
    assert "1 of 4 runs were not made yet" in render(report)
    lines = "\n".join(status_lines("r", state))
    assert "4 cell runs: 1 waiting, 2 done, 1 failed" in lines
    assert "it is not as it was found" in lines
    assert status_json("r", state)["counts"] == {"failed": 1, "waiting": 1, "done": 2}


def test_a_fraction_names_what_it_can_not_tell_apart(tmp_path):
    text = "\n".join(
        [
            '[experiment]\nname = "m"\ntarget = "fleet"\n[matrix]\nfraction = "half"',
            'baseline = {{ a = "l0", b = "l0", c = "l0" }}',
            *(
                f'[[factor]]\nname = "{n}"\n[[factor.level]]\nname = "l0"\n'
                f'[[factor.level]]\nname = "l1"\nenv = {{{{ {n} = "1" }}}}'
                for n in "abc"
            ),
            '[workload]\nkind = "command"\nargv = ["true"]\n[trials]\nruns = {runs}',
        ]
    )
    matrix = asked(tmp_path, text=text, runs=6)
    runs = cell_runs(matrix, fleet())
    results = [
        result_of(run, "h1", bad=12 if "a=l1" in run.cell else run.position % 2) for run in runs
    ]
    state = CampaignState(tuple(RunState(run, RunPhase.DONE, "h1") for run in runs))
    report = report_matrix(matrix, state, counted_of(state, results))
    told = " ".join(render(report).split())

    assert report.aliases[("a",)] == ("b x c",)
    assert "a=l1 (or b x c: the fraction can't tell): raises the rate" in told
    assert "a=l1 can't be told from b x c: add the cells that differ" in told


@pytest.mark.parametrize("width", [100])
def test_the_text_fits_a_terminal(tmp_path, width):
    assert max(len(line) for line in render(report_of(tmp_path)).splitlines()) <= width
