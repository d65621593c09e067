"""The stand-in's server: /health, /flags, /v1/models and a chat completion that always works."""

import argparse
import hashlib
import importlib
import json
import os
import pathlib
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SLOTS = ("indexer", "runner", "cache")


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("host", "model-path", "served-model-name", *SLOTS):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    for slot in SLOTS:
        module = importlib.import_module(getattr(options, slot))
        digest = hashlib.sha256(pathlib.Path(module.__file__).read_bytes()).hexdigest()
        print(f"[variant] {slot}={module.NAME} sha256={digest[:12]}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    server = ThreadingHTTPServer((options.host, options.port), Answers)
    print(f"ready on {options.host}:{options.port}", flush=True)
    server.serve_forever()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        flags = {key: value for key, value in os.environ.items() if key.startswith("SGLANG_")}
        known = {
            "/health": {"status": "ok"},
            "/flags": flags,
            "/v1/models": {"object": "list", "data": [{"id": "dsv4-flash", "object": "model"}]},
        }
        self.answer(200 if self.path in known else 404, known.get(self.path, {}))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message: dict[str, object] = {"role": "assistant", "content": "pong"}
        reason = "stop"
        if tools := request.get("tools"):
            call = {"name": tools[0]["function"]["name"], "arguments": "{}"}
            calls = [{"id": "call_1", "type": "function", "function": call}]
            message, reason = (
                {"role": "assistant", "content": None, "tool_calls": calls},
                "tool_calls",
            )
        choice = {"index": 0, "message": message, "finish_reason": reason}
        self.answer(200, {"object": "chat.completion", "choices": [choice]})

    def answer(self, status: int, document: dict[str, object]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


if __name__ == "__main__":
    main()
