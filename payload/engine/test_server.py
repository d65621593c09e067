"""The server as a process: the official client, the log's markers, drain, and refusals."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
import pytest

from payload.engine.oracle import expected
from payload.engine.tokenizer import standard_tokenizer

ROOT = Path(__file__).parents[2]
TOKENIZER = standard_tokenizer()
START_S = 120
ORDERED = ("--runner", "payload.runner.ordered_streams")
TOOL = {
    "type": "function",
    "function": {
        "name": "lookup_order",
        "description": "Look up one order.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
    },
}
LONG = " ".join(f"word{n}" for n in range(40))


def user(text):
    return [{"role": "user", "content": text}]


class Server:
    """A server process with its log."""

    def __init__(self, log_path, *options, **environ):
        self.log_path = log_path
        self.port = 0  # any that is free; the log names it
        command = [sys.executable, "-m", "payload.engine", "--port", "0", *options]
        command += ["--max-batch", "8", "--depth", "4", "--cache-pages", "300"]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SGLANG")}
        with log_path.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stderr=log, stdout=log, env={**clean, **environ}
            )

    @property
    def log(self):
        return self.log_path.read_text()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def post(self, body):
        return self.get(urllib.request.Request(f"{self.url}/v1/chat/completions", data=body))

    def get(self, asked):
        asked = self.url + asked if isinstance(asked, str) else asked
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError:
            return None, b""

    def info(self):
        return json.loads(self.get("/server_info")[1])

    def wait_until_up(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.process.poll() is None:
            if found := re.search(r"ready to roll! http://\S+:(\d+)", self.log):
                self.port = int(found[1])
                if self.get("/health")[0] == 200:
                    return self
            threading.Event().wait(0.05)
        raise AssertionError(self.log)

    def client(self):
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    server = Server(
        log, *ORDERED, SGLANG_LOG_DECODE_GRAPH_KEY="1", SGLANG_TYPO="\udcff"
    ).wait_until_up()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def client(server):
    with server.client() as client:
        yield client


def ask(client, messages, **options):
    return client.chat.completions.create(model="dsv4-flash", messages=messages, **options)


def content_of(messages, **fields):
    return expected({"messages": messages, **fields}, TOKENIZER)


def test_a_whole_reply_with_usage(client):
    reply = ask(client, user("hi there world"))

    choice = reply.choices[0]
    assert choice.message.content == "You said: hi there world."
    assert (choice.finish_reason, reply.model) == ("stop", "dsv4-flash")
    right = content_of(user("hi there world"))
    assert reply.usage.completion_tokens == len(right.tokens)
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + len(right.tokens)


def test_prompt_tokens_grow_by_one_for_each_known_word(client):
    counts = [
        ask(client, user("water " * n + "end"), max_tokens=1).usage.prompt_tokens
        for n in (100, 150)
    ]

    assert counts[1] - counts[0] == 50


def test_a_streamed_reply_is_the_same_text(client):
    chunks = list(ask(client, user(LONG), stream=True))

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == content_of(user(LONG)).content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks[-2:]] == [None, "stop"]


def test_streamed_calls_have_the_deltas_that_clients_join(client):
    asked = user("Look up AB-1234-C and DE-5678-F.")
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(ask(client, asked, tools=[TOOL], **options))

    *body, last = chunks
    assert last.choices == []
    assert last.usage.completion_tokens > 0
    assert body[-1].choices[0].finish_reason == "tool_calls"
    fragments = [call for chunk in body for call in chunk.choices[0].delta.tool_calls or []]
    for index, value in enumerate(("AB-1234-C", "DE-5678-F")):
        first, *later = [one for one in fragments if one.index == index]
        assert (first.type, first.function.name) == ("function", "lookup_order")
        assert first.id.startswith("call_")
        assert all(one.id is None and one.function.name is None for one in later)
        arguments = "".join(one.function.arguments for one in (first, *later))
        assert json.loads(arguments) == {"order_id": value}
    assert "DSML" not in "".join(chunk.choices[0].delta.content or "" for chunk in body)


def test_the_clients_own_stream_helper_agrees(client):
    with client.chat.completions.stream(
        model="dsv4-flash", messages=user("Look up AB-1234-C."), tools=[TOOL]
    ) as stream:
        message = stream.get_final_completion().choices[0].message

    assert json.loads(message.tool_calls[0].function.arguments) == {"order_id": "AB-1234-C"}
    assert message.content == "Let me look that up."


def test_a_conversation_to_its_end(client):
    messages = user("Please look up order ZK-4417-Q.")
    for value, result in (
        ("ZK-4417-Q", {"order_id": "ZK-4417-Q", "next_order_id": "MB-2093-T"}),
        ("MB-2093-T", {"order_id": "MB-2093-T", "tracking_code": "QX-5512-H"}),
    ):
        message = ask(client, messages, tools=[TOOL]).choices[0].message
        call = message.tool_calls[0]
        assert json.loads(call.function.arguments) == {"order_id": value}
        messages += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)},
        ]

    reply = ask(client, messages, tools=[TOOL]).choices[0]
    assert reply.message.content == "The tracking code is QX-5512-H."
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_the_limit_cuts_the_reply(client, stream):
    reply = ask(client, user(LONG), max_tokens=3, stream=stream)

    choices = [c.choices[0] for c in reply] if stream else reply.choices
    assert choices[-1].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_text_ends_the_reply_before_it(client, stream):
    reply = ask(client, user("one two three four"), stop=["three"], stream=stream)

    if stream:
        chunks = list(reply)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert chunks[-1].choices[0].finish_reason == "stop"
    else:
        text = reply.choices[0].message.content
    assert text == "You said: one two "


def test_forty_at_once_wait_their_turn_and_are_all_right(server, client):
    texts = [f"{LONG} number {n} AA-{n:04d}-B" for n in range(40)]

    with ThreadPoolExecutor(40) as pool:
        replies = list(pool.map(lambda text: ask(client, user(text)), texts))

    for text, reply in zip(texts, replies, strict=True):
        assert reply.choices[0].message.content == content_of(user(text)).content
    assert "decode graph key bs=8 raw=8" in server.log


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_away_frees_its_row(server, stream):
    body = json.dumps(
        {"messages": user("water " * 300), "stream": stream, "max_tokens": 500}
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    steps = json.loads(server.get("/v1/loads")[1])["steps"]
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode() + body)
            if stream:
                connection.recv(100)

    until = time.monotonic() + 30
    while time.monotonic() < until:
        loads = json.loads(server.get("/v1/loads")[1])
        if loads["running"] == loads["waiting"] == 0 and loads["steps"] > steps:
            break
        threading.Event().wait(0.02)
    assert (loads["running"], loads["waiting"], loads["loads"][0]["free_pages"]) == (0, 0, 299)


def test_errors_have_the_apis_shape(client):
    with pytest.raises(openai.NotFoundError, match="`other` does not exist"):
        client.chat.completions.create(model="other", messages=user("hi"))
    with pytest.raises(openai.BadRequestError, match="n must be 1"):
        ask(client, user("hi"), n=3)
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, user("water " * 5000))
    assert refused.value.code == "context_length_exceeded"


def nested(depth):
    """Return a request with a tool whose schema is nested so deep."""
    schema = '{"a":' * depth + "1" + "}" * depth
    function = f'{{"name": "f", "parameters": {{"properties": {{"a": {schema}}}}}}}'
    message = '{"role": "user", "content": "hi"}'
    return f'{{"messages": [{message}], "tools": [{{"function": {function}}}]}}'.encode()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{broken", 400, "invalid_json"),
        (b'{"messages": [], "top_p": NaN}', 400, "invalid_json"),
        (b'{"messages": [], "tools": [{"enum": [-1e999]}]}', 400, "invalid_json"),
        (nested(100_000), 400, "invalid_json"),
        (rb'{"messages": [], "model": "\ud800"}', 404, "model_not_found"),
        (rb'{"messages": [{"role": "\ud800"}]}', 400, "invalid_value"),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(server, body, status, code):
    answered, answer = server.post(body)

    assert (answered, json.loads(answer)["error"]["code"]) == (status, code)


def test_health_and_models(server, client):
    assert [server.get(path)[0] for path in ("/health", "/health_generate", "/ready")] == [200] * 3
    (listed,) = client.models.list()
    assert client.models.retrieve("dsv4-flash") == listed
    assert listed.id == "dsv4-flash"
    for other in ("gpt-4o", "org/other"):
        with pytest.raises(openai.NotFoundError, match=f"`{other}` does not exist"):
            client.models.retrieve(other)


def test_server_info_says_what_runs(server):
    info = server.info()

    assert info["pid"] == server.process.pid
    assert info["slots"]["runner"]["variant"] == "ordered_streams"
    assert info["slots"]["indexer"]["file"] == str(ROOT / "payload/indexer/transient.py")
    assert info["flags"]["SGLANG_LOG_DECODE_GRAPH_KEY"] == "1"
    assert info["environ"]["SGLANG_TYPO"] == "\udcff", "a byte that is no text"
    assert info["graph_buckets"] == [1, 2, 4, 8]
    assert info["index_k"] == "bf16"
    assert info["overlap"] is True
    assert set(info["versions"]) >= {"python", "torch", "starlette", "uvicorn"}


def test_the_log_proves_the_variants_and_shows_progress(server):
    for pattern in (
        r"\[variant\] indexer=transient sha256=[0-9a-f]{12} file=\S+transient\.py",
        r"\[variant\] runner=ordered_streams sha256=",
        r"\[variant\] cache=bf16 sha256=",
        r"weights: [\d.]+ MB in",
        r"pools: 300 pages, [\d.]+ MB, index_k=bf16",
        r"capturing graph bs=8 \(1/4\)",
        r"graphs: 4 in",
    ):
        assert re.search(pattern, server.log), pattern


def test_sigterm_drains_what_runs_and_takes_nothing_new(tmp_path):
    server = Server(tmp_path / "log", *ORDERED).wait_until_up()
    answered, refused = [], []

    def long_reply():
        with server.client() as client:
            try:
                answered.append(ask(client, user(LONG)).choices[0].message.content)
            except openai.APIError as error:
                refused.append(getattr(error, "status_code", None))

    asking = [threading.Thread(target=long_reply) for _ in range(8)]
    for thread in asking:
        thread.start()
    while json.loads(server.get("/v1/loads")[1])["running"] < 1:
        threading.Event().wait(0.002)

    server.process.send_signal(signal.SIGTERM)
    while "draining" not in server.log:
        threading.Event().wait(0.002)
    status = server.get("/health")[0]
    for thread in asking:
        thread.join()

    assert status in (503, None), "503 while it drains, gone once it has"
    assert server.process.wait(timeout=60) == 0
    assert answered, server.log
    assert set(answered) == {content_of(user(LONG)).content}
    assert set(refused) <= {503, None}, "refused, or not even connected"
    assert "drained: 0 left" in server.log


def test_a_request_that_never_ends_does_not_keep_the_server_up(tmp_path):
    server = Server(tmp_path / "log", *ORDERED).wait_until_up()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head)
        server.get("/health")  # by then the head has been read; this client goes away
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(head)
        server.get("/health")

        assert server.stop() == 0

    assert "drained: 0 left" in server.log
    assert "ClientDisconnect" not in server.log, "somebody who goes away is no failure"


def test_flags_reach_the_engine_and_bad_ones_warn(tmp_path):
    server = Server(
        tmp_path / "log",
        SGLANG_DSV4_BF16_INDEX_K="0",
        SGLANG_OPT_USE_MULTI_STREAM_OVERLAP="0",
        SGLANG_DSV4_GE_DIFF="1",
        SGLANG_DSV4_IDXK_CANARY="maybe",
    ).wait_until_up()
    with server.client() as client:
        ask(client, user(LONG))
    info = server.info()

    assert server.stop() == 0
    assert (info["index_k"], info["overlap"]) == ("fp8", False)
    assert info["findings"]["ge_diff"]["1"]["topk_differs"] == 0
    assert info["findings"]["stray_writes"] == 0
    assert "SGLANG_DSV4_IDXK_CANARY='maybe' is no truth word" in server.log
