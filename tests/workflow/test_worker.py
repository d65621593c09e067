"""A worker that can't serve a campaign leaves it to others, and does not wait for it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from fleetctl.errors import InputError
from fleetctl.queue.campaigns import OpenCampaign
from fleetctl.workflow.hopeless import Tries
from fleetctl.workflow.worker import Known, Worker
from tests.fakes.recorded_trials import trial

OPEN = OpenCampaign("c", {}, frozenset())
IN_VAIN = trial(0, "a", 0, 0, counted=0, void_because=("not found",), program_exit=127)


@pytest.fixture
def known():
    """A campaign that was made ready here, with all of its work left."""
    return Known(None, None, None, {}, Tries(Path("runs/c"), "start this worker again"))


@pytest.fixture
def worker(known, monkeypatch):
    made = Worker(None, None, None, None)
    made._known["c []"] = known
    monkeypatch.setattr(made, "_start", lambda *_: None)
    return made


def test_a_campaign_whose_program_does_not_get_going_here_is_nothing_to_wait_for(worker, known):
    campaigns = SimpleNamespace(unfinished=lambda: [OPEN])
    assert worker._step(campaigns)

    known.tries.after(IN_VAIN, lambda: False)
    with pytest.raises(InputError, match="does not get going") as told:
        known.tries.after(IN_VAIN, lambda: False)

    assert "start this worker again" in told.value.next_step
    assert not worker._step(campaigns)
