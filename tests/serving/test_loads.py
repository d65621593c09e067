"""What servers say of their own load, in the forms they say it."""

import http.server
import json
import threading

import pytest

from fleetctl.serving.loads import (
    LoadSampler,
    ServerLoad,
    fetch_json,
    read_loads,
    read_metrics,
    read_served,
    strangers,
)


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        ({"running": 3, "waiting": 1}, (3, 1)),
        ({"loads": [{"num_running_reqs": 3, "num_waiting_reqs": 0}]}, (3, 0)),
        ([{"num_running_reqs": 3}, {"num_running_reqs": 4}], (7, 0)),
        ({"loads": []}, (None, None)),
        ({"detail": "Not Found"}, (None, None)),
        ("nonsense", (None, None)),
        (None, (None, None)),
    ],
)
def test_loads_are_summed_over_ranks_and_unknown_where_unsaid(answer, counts):
    assert read_loads(answer) == counts


VLLM = """# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
"""


@pytest.mark.parametrize(
    ("page", "counts"),
    [
        (VLLM, (7, 2)),
        (
            'sglang:num_running_reqs{tp_rank="0"} 3.0\nsglang:num_queue_reqs{tp_rank="0"} 1.0\n',
            (3, 1),
        ),
        ("llamacpp:requests_processing 4\nllamacpp:requests_deferred 0\n", (4, 0)),
        ("tgi_batch_current_size 5\ntgi_queue_size 9\n", (5, 9)),
        ("vllm:num_requests_running_total 9\n", (None, None)),
        ("vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n", (None, None)),
        ("vllm:num_requests_running three\n", (None, None)),
        ("<html>", (None, None)),
        ("", (None, None)),
    ],
)
def test_a_metrics_page_tells_what_runs_and_waits_under_each_servers_names(page, counts):
    assert read_metrics(page) == counts


@pytest.fixture
def server():
    class Answers(http.server.BaseHTTPRequestHandler):
        running = 0
        path = "/v1/loads?include=all"

        def do_GET(self):
            Answers.running += 1
            body = json.dumps({"running": Answers.running % 5}).encode()
            if self.path == "/metrics":
                body = b"vllm:num_requests_running 6.0\n"
            self.send_response(404 if self.path != Answers.path else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            return

    found = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def sampled(server, samples: int):
    with LoadSampler(server.server_address, every_s=0.005) as sampler:
        while sampler.seen.samples < samples:
            threading.Event().wait(0.005)
    return sampler.seen


def test_the_largest_batch_is_remembered(server):
    seen = sampled(server, 10)

    assert seen.largest_running == 4
    assert 3 <= seen.busy_running <= 4


def test_a_few_answers_say_nothing_about_how_busy_it_was(server):
    assert LoadSampler(server.server_address).seen.busy_running is None


@pytest.mark.parametrize(
    ("largest_running", "samples", "batch"),
    [
        (4, 20, 4),  # the server was asked often, and knows best
        (1, 3, 40),  # a short trial: three answers may all have missed the batch
        (48, 3, 48),
        (None, 0, 40),  # it tells no figure
    ],
)
def test_a_few_answers_of_the_server_do_not_deny_the_batch_that_was_sent(
    largest_running, samples, batch
):
    load = ServerLoad(largest_running, largest_waiting=0, samples=samples)

    assert load.largest_batch(40) == batch


def test_a_server_without_loads_is_asked_for_its_metrics(server):
    server.RequestHandlerClass.path = "/metrics"

    assert sampled(server, 2).largest_running == 6


def test_a_server_that_is_not_there_says_nothing():
    assert fetch_json(("127.0.0.1", 1), "/v1/loads") is None


@pytest.mark.parametrize(
    ("page", "served"),
    [
        (
            'vllm:request_success_total{finished_reason="stop"} 7.0\n'
            'vllm:request_success_total{finished_reason="length"} 2.0\n',
            9,
        ),
        ('sglang:num_requests_total{model_name="m"} 12.0\n', 12),
        ("tgi_request_count 4\n", 4),
        (VLLM, None),
        ("", None),
    ],
)
def test_requests_served_are_summed_over_how_they_ended(page, served):
    assert read_served(page) == served


@pytest.mark.parametrize(
    ("load", "signs"),
    [
        (ServerLoad(None, None, 0), 0),
        (ServerLoad(40, 0, 9, largest_asked=40, before=0, served=120), 0),
        (ServerLoad(20, 9, 9, largest_asked=29, before=0, served=100), 0),
        (ServerLoad(40, 7, 9, largest_asked=47, before=0), 1),
        (ServerLoad(40, 0, 9, largest_asked=40, before=3), 1),
        (ServerLoad(40, 0, 9, largest_asked=40, before=0, served=121), 1),
        (ServerLoad(41, 0, 9, largest_asked=41, before=1, served=121), 3),
    ],
)
def test_more_than_the_trial_sends_is_somebody_elses(load, signs):
    assert len(strangers(load, most_at_once=40, sent=120)) == signs


def test_what_ran_before_the_trial_and_what_was_served_meanwhile_is_seen():
    """A server whose counters grow with every look at them."""

    class Answers(http.server.BaseHTTPRequestHandler):
        looks = 0

        def do_GET(self):
            Answers.looks += self.path == "/metrics"
            body = f"vllm:num_requests_running 3\nvllm:request_success_total {Answers.looks}\n"
            self.send_response(200 if self.path == "/metrics" else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            return

    found = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    try:
        seen = sampled(found, 2)
    finally:
        found.shutdown()
        found.server_close()

    assert seen.before == seen.largest_asked == 3
    assert seen.served >= 3


def test_a_server_that_says_nothing_tells_of_nobody():
    with LoadSampler(("127.0.0.1", 1), every_s=0.005) as sampler:
        pass

    assert sampler.seen == ServerLoad(None, None, 0)
    assert strangers(sampler.seen, most_at_once=1, sent=0) == ()
