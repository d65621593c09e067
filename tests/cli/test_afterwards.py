"""What fails after the hosts are back: the exit code and the errors tell the hosts' state."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from fleetctl.cli import matrix, run, search
from fleetctl.errors import ExitCode, FleetError, NotReady, NotRestored, StoreError
from fleetctl.store.campaign import CampaignState
from fleetctl.store.run_folder import RunFolder
from fleetctl.workflow.campaign import CampaignEnd
from tests.workflow.matrices import asked


class FullFolder(RunFolder):
    """A run's folder on a disk that took everything but the report."""

    def write(self, name, content):
        raise StoreError(f"can't write {name}", why="No space left on device", next_step="free it")


def ended(tmp_path, error):
    return CampaignEnd(FullFolder(tmp_path / "r1"), CampaignState(()), (), (), error)


def finish(tmp_path, error):
    with pytest.raises(FleetError) as caught:
        matrix._finish(asked(tmp_path), ended(tmp_path, error), tmp_path, 1.0, as_json=False)
    return caught.value


@pytest.mark.parametrize("kind", [NotReady, NotRestored])
def test_a_report_that_can_not_be_written_never_hides_the_campaign_s_own_error(
    tmp_path, capsys, kind
):
    own = kind("h1 failed", why="so it is", next_step="look")

    assert finish(tmp_path, own) is own
    assert "no report: can't write report.txt: No space left on device" in capsys.readouterr().err


def test_a_campaign_whose_report_can_not_be_written_has_restored_its_hosts(tmp_path):
    error = finish(tmp_path, None)

    assert error.exit_code is ExitCode.FAILED_RESTORED
    assert error.next_step == "free it; then `fleetctl resume r1` writes the report"


def test_a_damaged_history_is_no_refusal_either_and_hides_nothing(tmp_path, monkeypatch):
    def damaged(*_):
        raise FleetError("the history is damaged", why="", next_step="mend it")

    monkeypatch.setattr("fleetctl.workflow.judging.judge_run", damaged)
    measured = SimpleNamespace(folder=RunFolder(tmp_path / "r1"), facts=())
    with pytest.raises(FleetError) as caught:
        run._judge(None, None, measured, tmp_path)

    assert caught.value.exit_code is ExitCode.FAILED_RESTORED
    assert "resume r1" in caught.value.next_step


def test_a_search_prints_the_report_that_it_can_not_write(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("fleetctl.store.run_folder.RunFolder", FullFolder)

    with pytest.raises(StoreError) as caught:
        search._tell(tmp_path / "r1", {"a": 1}, "the culprit\n", as_json=False)

    assert caught.value.exit_code is ExitCode.FAILED_RESTORED
    assert capsys.readouterr().out == "the culprit\n"
