"""Ready is found layer by layer; dead, looping, broken and unknown are told apart."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from fleetctl.clock import SystemClock
from fleetctl.errors import ConnectionLost, ExitCode, NotReady
from fleetctl.serving.layers import LayerPlan, ReadyPlan, service_layers
from fleetctl.serving.probe import Answered, TargetProbe, Unknown, Unreachable, list_models
from fleetctl.serving.readiness import LayerNotReady, latest_progress, wait_until_ready
from fleetctl.serving.target import Target
from fleetctl.transaction.snapshot import UnitReport

SHORT = LayerPlan(deadline_s=30.0, poll_s=3.0)
PLAN = ReadyPlan(model="fake", active=SHORT, port=SHORT, health=SHORT, completion=SHORT)
UP = UnitReport("sglang.service", "active", "running", "success", 0, "inv-1", 42, (), ("started",))


class QuickClock:
    """Time passes only by sleeping, and then at once; something may happen at a moment."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.pauses: list[float] = []
        self.at: list[tuple[float, Callable[[], object]]] = []

    def now_s(self) -> float:
        return self.time_s

    def monotonic_s(self) -> float:
        return self.time_s

    def sleep(self, duration_s: float) -> None:
        self.pauses.append(duration_s)
        self.time_s += duration_s
        for moment, happen in [each for each in self.at if each[0] <= self.time_s]:
            self.at.remove((moment, happen))
            happen()


class Watch:
    """A unit whose state a test sets; `None` cannot be asked."""

    def __init__(self, unit: UnitReport | None = UP) -> None:
        self.unit = unit

    def report(self) -> UnitReport:
        if self.unit is None:
            raise ConnectionLost("the connection broke", why="it broke", next_step="")
        return self.unit

    def become(self, **changes: object) -> Callable[[], None]:
        def happen() -> None:
            self.unit = replace(self.unit or UP, **changes)

        return happen


def probe_of(server, clock=None, **how: object) -> TargetProbe:
    return TargetProbe(Target(server.url, "fake"), clock or SystemClock(), **how)


def closed_port() -> TargetProbe:
    return TargetProbe(Target("http://127.0.0.1:1", "fake"), QuickClock())


def failing(plan: ReadyPlan, probe, **how: object) -> LayerNotReady:
    with pytest.raises(LayerNotReady) as caught:
        wait_until_ready(plan, probe, how.pop("clock", None) or QuickClock(), **how)
    return caught.value


def test_a_healthy_service_passes_every_layer_in_order(serve):
    plan = replace(PLAN, tool_call=SHORT, concurrent=4, soak_s=1.0)
    ready = wait_until_ready(plan, probe_of(serve()), QuickClock(), watch=Watch())
    names = [layer.name for layer in ready.layers]
    assert names == ["unit", "port", "health", "completion", "tool call", "4 concurrent", "soak"]
    assert ready.unit == UP


@pytest.mark.parametrize(
    ("behaviour", "layer", "why"),
    [
        ({"mode": "unhealthy"}, "health", "503"),
        ({"mode": "broken"}, "completion", "CUDA error"),
        ({"mode": "wrong_model"}, "completion", "`another` answered instead of `fake`"),
        ({"mode": "empty"}, "completion", "empty_reply"),
        ({"mode": "leaky"}, "completion", "leak_content"),
        ({"mode": "rate_limited"}, "completion", "429"),
        ({"mode": "hang_up"}, "completion", "POST /v1/chat/completions"),
    ],
)
def test_a_green_port_or_health_does_not_hide_what_is_broken_above(serve, behaviour, layer, why):
    error = failing(PLAN, probe_of(serve(**behaviour)), watch=Watch())
    assert error.layer == layer
    assert why in error.why
    assert error.log_lines == ("started",)
    assert error.exit_code is ExitCode.FAILED_RESTORED
    assert isinstance(error, NotReady)


def test_a_service_that_speaks_but_cannot_call_tools_fails_at_the_tool_call(serve):
    error = failing(replace(PLAN, tool_call=SHORT), probe_of(serve(mode="wrong_value")))
    assert error.layer == "tool call"
    assert "wrong_arguments" in error.why
    assert [layer.name for layer in error.passed] == ["port", "health", "completion"]


def test_a_port_that_never_opens_is_unreachable_and_the_deadline_is_kept():
    clock = QuickClock()
    error = failing(PLAN, closed_port(), clock=clock)
    assert (error.layer, error.state) == ("port", "unreachable")
    assert "port is unreachable: nothing listens on the port yet (waited" in error.why
    assert 30 <= clock.time_s <= 34


def test_what_is_up_after_a_second_is_noticed_in_about_a_second():
    for up_s in (1.0, 5.0, 20.0):
        clock, watch = QuickClock(), Watch(replace(UP, active_state="activating"))
        clock.at.append((up_s, watch.become(active_state="active")))
        with contextlib.suppress(LayerNotReady):
            wait_until_ready(PLAN, closed_port(), clock, watch=watch, on_progress=noted(clock))
        assert seen_at(clock, "unit: active") <= 1.15 * up_s + 0.1


def noted(clock: QuickClock) -> Callable[[str], None]:
    clock.said = []
    return lambda line: clock.said.append((clock.time_s, line))


def seen_at(clock: QuickClock, start: str) -> float:
    return next(moment for moment, line in clock.said if line.startswith(start))


def test_polling_slows_down_to_the_asked_interval():
    clock = QuickClock()
    failing(replace(PLAN, port=LayerPlan(120.0, 5.0)), closed_port(), clock=clock)
    assert clock.pauses[0] == pytest.approx(0.1)
    assert clock.pauses[-1] == 5.0


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"active_state": "failed", "result": "exit-code"}, "dead"),
        ({"active_state": "inactive"}, "dead"),
        ({"active_state": "activating", "sub_state": "auto-restart"}, "looping"),
        ({"restarts": 1}, "looping"),
        ({"restarts": None, "invocation": "inv-2"}, "looping"),
    ],
)
def test_a_unit_that_dies_or_loops_at_second_3_ends_the_wait_within_a_second(changes, state):
    clock, watch = QuickClock(), Watch()
    clock.at.append((3.0, watch.become(log_lines=("RuntimeError: no GPU",), **changes)))
    error = failing(PLAN, closed_port(), clock=clock, watch=watch)
    assert error.state == state
    assert clock.time_s < 4.0
    assert "RuntimeError: no GPU" in error.why


def test_restarts_from_before_do_not_count_when_the_service_was_not_started_by_us(serve):
    watch = Watch(replace(UP, restarts=7))
    wait_until_ready(
        replace(PLAN, restarts_before=None), probe_of(serve()), QuickClock(), watch=watch
    )
    error = failing(PLAN, probe_of(serve()), watch=watch)
    assert error.state == "looping"


def test_a_broken_way_to_the_host_is_unknown_and_uses_up_no_deadline_of_the_service(serve):
    clock, watch = QuickClock(), Watch(None)
    clock.at.append((25.0, watch.become(active_state="activating")))
    clock.at.append((50.0, watch.become(active_state="active")))
    ready = wait_until_ready(PLAN, probe_of(serve()), clock, watch=watch)
    assert ready.after_s >= 50.0 > SHORT.deadline_s
    forever = failing(PLAN, probe_of(serve()), watch=Watch(None))
    assert forever.state == "unknown"


def test_a_failure_on_a_broken_way_is_unknown_and_on_a_sound_one_unreachable():
    def broken() -> None:
        raise ConnectionLost("the connection broke", why="no answer", next_step="")

    target = Target("http://127.0.0.1:1", "fake")
    assert isinstance(TargetProbe(target, QuickClock(), broken).port(deadline_s=1), Unknown)
    assert isinstance(TargetProbe(target, QuickClock(), broken).get("/", deadline_s=1), Unknown)
    assert isinstance(TargetProbe(target, QuickClock()).port(deadline_s=1), Unreachable)


@pytest.mark.parametrize("linger_s", [None, 0])  # an orderly end, as of `ssh -L`, and a reset
def test_a_tunnel_that_accepts_and_closes_means_that_nothing_listens(linger_s):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def accept_and_close() -> None:
            connection, _ = listener.accept()
            if linger_s is not None:
                linger = struct.pack("ii", 1, linger_s)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            connection.close()

        thread = threading.Thread(target=accept_and_close)
        thread.start()
        probe = TargetProbe(Target(f"http://127.0.0.1:{port}", "fake"), SystemClock())
        assert probe.port(deadline_s=2) == Unreachable("nothing listens on the port")
        thread.join()


def test_a_port_that_refuses_is_told_in_the_same_words():
    assert closed_port().port(deadline_s=1) == Unreachable("nothing listens on the port")


def test_a_server_that_drips_for_ever_is_given_up_at_the_deadline(serve):
    server = serve(mode="endless")
    answer = probe_of(server).chat(b'{"messages": []}', deadline_s=0.5)
    assert isinstance(answer, Unreachable)
    assert "within 0.5 s" in answer.why


def test_a_server_that_sends_a_gigabyte_is_read_up_to_a_megabyte(serve):
    answer = probe_of(serve(mode="gigabyte")).chat(b'{"messages": []}', deadline_s=30)
    assert isinstance(answer, Answered)
    assert len(answer.body) == 2**20


def test_served_models_are_listed_and_silence_is_an_empty_list(serve):
    assert list_models(probe_of(serve())) == ("fake",)
    assert list_models(closed_port()) == ()


def test_progress_is_read_from_the_services_log():
    lines = ("loading weights 12 %", "loading weights 40 %", "something else")
    assert latest_progress(lines, (r"loading weights (\d+) %",)) == "loading weights 40 %"
    assert latest_progress(lines, ()) == ""
    said: list[str] = []
    failing(
        replace(PLAN, progress=(r"graphs captured: (\d+)",)),
        closed_port(),
        watch=Watch(replace(UP, log_lines=("graphs captured: 8",))),
        on_progress=said.append,
    )
    assert any("graphs captured: 8" in line for line in said)


def test_a_unit_must_stay_up_for_the_soak_time(serve):
    clock, watch = QuickClock(), Watch()
    ready = wait_until_ready(replace(PLAN, soak_s=5.0), probe_of(serve()), clock, watch=watch)
    assert ready.after_s >= 5.0
    clock = QuickClock()
    clock.at.append((2.0, watch.become(active_state="failed")))
    error = failing(replace(PLAN, soak_s=5.0), probe_of(serve()), clock=clock, watch=watch)
    assert (error.layer, error.state) == ("soak", "dead")


def test_each_layer_has_a_deadline_and_a_poll_of_its_own():
    own = [LayerPlan(float(number), 0.1) for number in range(1, 6)]
    plan = ReadyPlan(
        port=own[0],
        health=own[1],
        completion=own[2],
        tool_call=own[3],
        concurrent=2,
        concurrent_layer=own[4],
    )

    assert [layer.plan for layer in service_layers(plan)] == own
    assert service_layers(replace(plan, concurrent_layer=None))[-1].plan == own[2]
