"""One request, recorded: the message it adds up to is the one its record adds up to."""

from __future__ import annotations

import asyncio
import json

import pytest

from fleetctl.errors import InputError
from fleetctl.serving.client import ByteBudget, Due, StreamClient
from fleetctl.serving.target import Target
from fleetctl.trial.events import Ended, Exchange
from fleetctl.trial.reply import Reply, assemble
from fleetctl.trial.scenario import Calibration, build_scenario, first_messages, request_body
from fleetctl.trial.workload import Limits, ToolcallWorkload

PATIENT = Limits()
IMPATIENT = {"drip": Limits(ttft_s=0.5, total_s=1.5), "stall": Limits(stall_s=0.3)}


def ask(
    url: str, *, limits: Limits = PATIENT, stream: bool = True, budget: ByteBudget | None = None
) -> tuple[Exchange, Reply]:
    workload = ToolcallWorkload(stream=stream, context_tokens=20)
    scenario = build_scenario(
        workload, root_seed=0, run_index=0, session=0, calibration=Calibration()
    )
    messages = first_messages(scenario)
    body = request_body(workload, model="fake", messages=messages, request_seed=0)

    async def run() -> tuple[Exchange, Reply]:
        async with StreamClient(Target(url, "fake"), limits) as client:
            due = Due(1, body, stream, 0.0, asyncio.get_running_loop().time())
            return await client.exchange(due, budget or ByteBudget())

    return asyncio.run(run())


MODES = ["healthy", "torn", "not_json", "error_event", "killed", "stall", "drip", "leaky", "broken"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_the_message_is_what_the_record_adds_up_to(serve, mode, stream):
    exchange, reply = ask(serve(mode=mode).url, stream=stream, limits=IMPATIENT.get(mode, PATIENT))
    assert reply == assemble(exchange)


def test_events_carry_rising_times_and_the_first_token_is_not_the_role(serve):
    exchange, _ = ask(serve(first_delay_s=0.1, delay_s=0.01).url)
    times = [event.at_s for event in exchange.events]
    assert times == sorted(times)
    assert times[0] >= 0.1
    role, first = exchange.events[0], exchange.events[1]
    assert '"role"' in role.data
    assert exchange.first_token_at_s == first.at_s > role.at_s
    assert times[-1] <= exchange.finished_at_s


def test_the_exact_request_and_the_headers_are_kept_without_cookies(serve):
    server = serve()
    exchange, _ = ask(server.url)
    assert exchange.request.encode() == server.behaviour.bodies[0]
    headers = dict(exchange.headers)
    assert headers["content-type"] == "text/event-stream"
    assert "canary-cookie" not in str(exchange)


def test_a_stream_without_its_content_type_is_still_a_stream(serve):
    exchange, reply = ask(serve(mode="untyped").url)
    assert len(exchange.events) > 3
    assert reply.calls[0].name == "lookup_order"


def test_json_in_answer_to_a_stream_request_is_taken_as_it_is(serve):
    exchange, reply = ask(serve(mode="unstreamed").url)
    assert exchange.events == ()
    assert json.loads(exchange.body)["choices"]
    assert reply.calls[0].name == "lookup_order"


def test_reading_stops_when_the_budget_is_used_up(serve):
    budget = ByteBudget(left=10_000)
    exchange, _ = ask(serve(mode="gigabyte").url, budget=budget)
    assert exchange.ended is Ended.TOO_LARGE
    assert exchange.received_bytes < 10_000 + 2**20


def test_the_budget_is_the_sessions_and_not_each_requests(serve):
    server, budget = serve(), ByteBudget(left=4000)
    endings = {ask(server.url, budget=budget)[0].ended for _ in range(8)}
    assert endings == {Ended.COMPLETE, Ended.TOO_LARGE}


@pytest.mark.parametrize(
    ("url", "api"),
    [
        ("http://h:1", "http://h:1/v1"),
        ("http://h:1/", "http://h:1/v1"),
        ("http://h:1/v1", "http://h:1/v1"),
        ("https://h/proxy/v1/", "https://h/proxy/v1"),
        ("https://h/proxy", "https://h/proxy/v1"),
    ],
)
def test_a_base_url_is_taken_with_or_without_v1(url, api):
    assert Target(url, "m").api == api


@pytest.mark.parametrize("url", ["", "host:80", "ftp://h", "http://", "/v1"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(InputError):
        Target(url, "m")


def test_the_key_is_in_the_header_and_not_in_the_text():
    target = Target("http://u:p@h:1", "m", "canary-5")
    assert target.headers["Authorization"] == "Bearer canary-5"
    assert "canary-5" not in repr(target)
    assert target.shown_url == "http://h:1"
