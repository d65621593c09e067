"""What servers say of their own load, in the forms they say it."""

import http.server
import json
import threading

import pytest

from fleetctl.serving.loads import LoadSampler, fetch_json, read_loads, read_metrics


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


def test_a_server_without_loads_is_asked_for_its_metrics(server):
    server.RequestHandlerClass.path = "/metrics"

    assert sampled(server, 2).largest_running == 6


def test_a_server_that_is_not_there_says_nothing():
    assert fetch_json(("127.0.0.1", 1), "/v1/loads") is None
