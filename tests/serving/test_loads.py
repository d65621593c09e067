"""What servers say of their own load, in the forms they say it."""

import http.server
import json
import threading

import pytest

from fleetctl.serving.loads import LoadSampler, fetch_json, read_loads


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


@pytest.fixture
def server():
    class Answers(http.server.BaseHTTPRequestHandler):
        running = 0

        def do_GET(self):
            Answers.running += 1
            body = json.dumps({"running": Answers.running % 5}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            return

    found = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found.server_address
    found.shutdown()
    found.server_close()


def test_the_largest_batch_is_remembered(server):
    with LoadSampler(server, every_s=0.01) as sampler:
        while sampler.seen.samples < 10:
            threading.Event().wait(0.01)

    assert sampler.seen.largest_running == 4


def test_a_server_that_is_not_there_says_nothing():
    assert fetch_json(("127.0.0.1", 1), "/v1/loads") is None
