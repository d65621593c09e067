"""An OpenAI-compatible server with other habits than ours, for test_foreign_server.py.

It stands on aiohttp, is healthy at /ping, thinks in a field called `reasoning`, counts no tokens,
ends a stream with its last chunk instead of `[DONE]`, ends lines with CRLF, sends comments, and
appends a revision to the model's name.
"""

import json
import os
import sys

from aiohttp import web

LEAKS = os.environ.get("FOREIGN_TOOL_PARSER", "on") == "off"
MODEL = "other-model@9f2c"


async def ping(_: web.Request) -> web.Response:
    return web.Response(text="pong")


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    message, reason = answer_to(body)
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response({"model": MODEL, "choices": [choice]})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    await response.write(b": ping\r\n\r\n")
    for delta in pieces(message):
        await response.write(event({"index": 0, "delta": delta, "finish_reason": None}))
    await response.write(event({"index": 0, "delta": {}, "finish_reason": reason}))
    return response


def answer_to(body: dict) -> tuple[dict, str]:
    """Return a message and its finish reason: the call, or the text, that is due."""
    last = body["messages"][-1]
    if "tools" not in body:
        return {"role": "assistant", "content": "All is well.", "reasoning": "Be short."}, "stop"
    told = json.loads(last["content"]) if last["role"] == "tool" else {}
    if "tracking_code" in told:
        text = f"Your tracking code is {told['tracking_code']}."
        return {"role": "assistant", "content": text, "reasoning": "It was found."}, "stop"
    order = told.get("next_order_id") or last["content"].rstrip(".").split()[-1]
    function = body["tools"][0]["function"]
    (argument,) = function["parameters"]["properties"]
    call = {"name": function["name"], "arguments": json.dumps({argument: order})}
    if LEAKS:
        spoken = {"name": call["name"], "arguments": {argument: order}}
        text = f"<tool_call>\n{json.dumps(spoken)}\n</tool_call>"
        return {"role": "assistant", "content": text}, "stop"
    calls = [{"id": f"call-{order}", "type": "function", "function": call}]
    message = {"role": "assistant", "content": None, "reasoning": "Look.", "tool_calls": calls}
    return message, "tool_calls"


def pieces(message: dict) -> list[dict]:
    """Return the deltas of a message: texts in halves, arguments three characters at a time."""
    found: list[dict] = [{"role": "assistant"}]
    for field in ("reasoning", "content"):
        text = message.get(field) or ""
        middle = len(text) // 2
        found += [{field: half} for half in (text[:middle], text[middle:]) if half]
    for call in message.get("tool_calls", ()):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        head = {"index": 0, "id": call["id"], "type": "function", "function": {"name": name}}
        found.append({"tool_calls": [head]})
        found += [
            {"tool_calls": [{"index": 0, "function": {"arguments": arguments[at : at + 3]}}]}
            for at in range(0, len(arguments), 3)
        ]
    return found


def event(choice: dict) -> bytes:
    return f"data: {json.dumps({'model': MODEL, 'choices': [choice]})}\r\n\r\n".encode()


if __name__ == "__main__":
    print(f"[foreign] parser={'off' if LEAKS else 'on'}", flush=True)
    app = web.Application(client_max_size=2**26)
    app.add_routes([web.get("/ping", ping), web.post("/v1/chat/completions", chat)])
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
