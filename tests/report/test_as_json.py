"""The report as plain values."""

import json

import pytest

from fleetctl.analysis.counts import ArmCounts, DrawnBlock, Run
from fleetctl.analysis.effective import Difference, Kind
from fleetctl.analysis.history import Dispersion
from fleetctl.analysis.verdict import judge
from fleetctl.report import document
from fleetctl.report.as_json import as_json


def test_the_story_says_what_the_issue_asks_for(report_of):
    value = as_json(report_of([6, 5, 7], [2, 2, 5]))

    assert value["schema"] == "fleetctl.report/1"
    assert value["verdict"] == "inconclusive"
    assert value["elimination_refuted"] is True
    assert value["more_runs_per_arm"] == 6
    assert value["comparison"]["test"]["p"] == pytest.approx(0.139833, abs=1e-6)
    assert value["if_sessions_were_independent"]["boschloo_p"] == pytest.approx(0.0811, abs=1e-4)


@pytest.mark.parametrize(("control", "treatment"), [([6, 5, 7], []), ([6], [2]), ([0], [0])])
def test_every_report_is_valid_json_without_nan(report_of, control, treatment):
    text = json.dumps(as_json(report_of(control, treatment)), allow_nan=False)

    assert json.loads(text)["trials"]


def test_every_number_can_be_traced_to_trials(measured):
    value = as_json(measured)

    trials = value["trials"]
    assert [trial["trial"] for trial in trials] == [f"trials/{i}" for i in range(4)]
    for arm in ("control", "treatment"):
        own = [trial for trial in trials if trial["arm"] == arm]
        assert value[arm]["bad"] == sum(trial["bad"] for trial in own)
        assert value[arm]["sessions"] == sum(trial["sessions"] for trial in own)
        assert value[arm]["infra"] == sum(trial["classes"]["infra"] for trial in own)
    assert trials[3]["invalid_because"] == ["the unit restarted"]


def test_differences_history_and_blocks_are_kept():
    runs = tuple(Run(x, 40, block=DrawnBlock("gpu-1/0", 2)) for x in (6, 5))
    arms = (ArmCounts("control", runs[:1]), ArmCounts("treatment", runs[1:]))
    judgement = judge(*arms, history=Dispersion(1.3, 11, ("monday",)))
    changed = (Difference(Kind.FLAG, "BF16", "1", "0"),)

    value = json.loads(json.dumps(as_json(document.build(judgement, differences=changed))))

    assert value["differences"][0] == {
        "kind": "flag",
        "name": "BF16",
        "control": "1",
        "treatment": "0",
    }
    assert value["history"] == {"phi": 1.3, "df": 11, "records": ["monday"]}
    assert value["trials"][0]["block"] == "gpu-1/0"
    assert value["evalue"] == pytest.approx(1.0, abs=0.2)
