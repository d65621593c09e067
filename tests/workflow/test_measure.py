"""What a trial's facts say of the load: only what somebody has measured."""

from dataclasses import replace

from fleetctl.serving.loads import ServerLoad
from fleetctl.trial.exposure import Exposure
from fleetctl.trial.summary import ClientHealth, TrialResult
from fleetctl.workflow.measure import concurrency_share, foreign_load

OURS = TrialResult(
    "toolcall",
    40,
    40,
    6,
    (),
    exposure=Exposure(requests=120),
    client=ClientHealth(1, 0.5, 0.1, 1.0, 2.0),
)


def test_a_program_s_concurrency_is_unknown_and_not_zero():
    """With 0 no `command` workload could ever get a verdict."""
    assert concurrency_share(TrialResult("command", 40, 40, 6, ())) is None


def test_our_own_client_s_concurrency_is_a_share_of_the_sessions():
    client = ClientHealth(1, 0.5, 0.1, 1.0, 2.0)
    result = TrialResult(
        "toolcall", 40, 40, 6, (), exposure=Exposure(peak_concurrency=30), client=client
    )

    assert concurrency_share(result) == 0.75


def test_load_of_others_is_what_exceeds_our_own():
    quiet = ServerLoad(40, 0, 9, largest_asked=40, before=0, served=120)

    assert foreign_load(OURS, quiet) == ()
    (told,) = foreign_load(OURS, replace(quiet, largest_asked=47))
    assert told == "the server had 47 requests at once, and the trial sends at most 40"


def test_a_silent_server_or_a_program_of_ones_own_tells_nothing_of_others():
    busy = ServerLoad(47, 0, 9, largest_asked=47, before=3)

    assert foreign_load(OURS, ServerLoad(None, None, 0)) is None
    assert foreign_load(replace(OURS, client=None), busy) is None
