"""What a trial's facts say of the load: only what somebody has measured."""

from fleetctl.trial.exposure import Exposure
from fleetctl.trial.summary import ClientHealth, TrialResult
from fleetctl.workflow.measure import concurrency_share


def test_a_program_s_concurrency_is_unknown_and_not_zero():
    """With 0 no `command` workload could ever get a verdict."""
    assert concurrency_share(TrialResult("command", 40, 40, 6, ())) is None


def test_our_own_client_s_concurrency_is_a_share_of_the_sessions():
    client = ClientHealth(1, 0.5, 0.1, 1.0, 2.0)
    result = TrialResult(
        "toolcall", 40, 40, 6, (), exposure=Exposure(peak_concurrency=30), client=client
    )

    assert concurrency_share(result) == 0.75
