"""What can be seen in one reply: every sign of trouble as a flag with its evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fleetctl.trial.arguments import (
    Tools,
    declared_tools,
    form_flags,
    is_expected,
    parse_arguments,
    strings_in,
)
from fleetctl.trial.events import Ended, Exchange, Expectation, Truth, request_of
from fleetctl.trial.garbage import GarbageLimits, garbage_flags
from fleetctl.trial.markup import find_leaks
from fleetctl.trial.planted import VALUE_PATTERN, owner_of
from fleetctl.trial.reply import Reply
from fleetctl.trial.text import fold, is_said


@dataclass(frozen=True)
class Finding:
    """One flag and its evidence.

    Attributes:
        flag: the sign, as in outcomes.toml, or a harmless oddity.
        evidence: the place in the reply, for people.
    """

    flag: str
    evidence: str = ""


@dataclass(frozen=True)
class ReplyContext:
    """What must be known to judge a reply.

    Attributes:
        truth: the session's planted values.
        expectation: what this round's reply must be; None when nothing is known.
        had_token: the server had answered this session before.
    """

    truth: Truth
    expectation: Expectation | None
    had_token: bool


def find(
    exchange: Exchange, reply: Reply, context: ReplyContext, limits: GarbageLimits
) -> list[Finding]:
    """Return every flag of a reply."""
    request = request_of(exchange)
    tools = declared_tools(request)
    prompt = "\n".join(strings_in([request.get("messages"), request.get("tools")]))
    transport = [*_transport_flags(exchange, context), *_protocol_flags(exchange, reply, context)]
    found = [
        *transport,
        *_leak_flags(reply, prompt, tools),
        *_value_flags(reply, context.truth),
        *_garbage_flags(reply, prompt, limits),
        *(Finding(oddity) for oddity in sorted(reply.oddities)),
    ]
    if transport or exchange.status != 200:
        return found
    signs = {finding.flag for finding in found}
    found += _form_flags(reply, tools)
    found += _truth_flags(reply, context, tools, has_foreign="foreign_value" in signs)
    found += _ending_flags(reply, context, is_readable=not signs & _UNREADABLE)
    return found


MOST_VALUES = 20  # of one text that are reported; a runaway reply may hold a million
_SOUND_FORM = frozenset({"schema_unusable"})
_UNREADABLE = frozenset(
    {"ngram_loop", "stutter", "compressible", "replacement_chars", "control_bytes", "script_switch"}
    | {"script_salad", "symbol_soup"}
)

# vLLM and SGLang end a reply so when the engine dropped the request; its text is no answer
_GIVEN_UP = frozenset({"abort", "error"})
_ENDED_FLAGS = {
    Ended.CONNECT_FAILED: "connect_failed",
    Ended.ABORTED: "client_aborted",
    Ended.TTFT: "ttft_timeout",
    Ended.STALL: "stall_timeout",
    Ended.TOTAL: "total_timeout",
    Ended.TOO_LARGE: "too_large",
}


def _transport_flags(exchange: Exchange, context: ReplyContext) -> Iterator[Finding]:
    """Say what the socket and the status line say."""
    if exchange.ended in _ENDED_FLAGS:
        yield Finding(_ENDED_FLAGS[exchange.ended], exchange.detail)
    status = exchange.status
    if exchange.ended is Ended.CUT and status is None:
        yield Finding("stream_cut" if context.had_token else "no_response", exchange.detail)
    if status is None or status == 200:
        return
    evidence = f"{status} {exchange.body[:200]}"
    if status == 429:
        yield Finding("rate_limited", evidence)
    elif status == 503 or (status >= 500 and not context.had_token):
        yield Finding("server_unavailable", evidence)
    else:
        yield Finding("http_error", evidence)


def _protocol_flags(exchange: Exchange, reply: Reply, context: ReplyContext) -> Iterator[Finding]:
    """Say whether a 200 holds a whole answer."""
    if exchange.status != 200:
        return
    if reply.server_error is not None:
        code, message = reply.server_error
        # a stored stream has no times, but it shows whether an answer had begun
        had_token = context.had_token or exchange.first_token_at_s is not None
        early = code >= 500 and reply.is_empty and not had_token
        flag = {429: "rate_limited", 503: "server_unavailable"}.get(code)
        yield Finding(flag or ("server_unavailable" if early else "server_error"), message)
    if reply.malformed:
        yield Finding("malformed_response", f"{reply.malformed} unreadable pieces")
    has_end = reply.finish_reason is not None
    if reply.finish_reason in _GIVEN_UP:
        yield Finding("given_up_by_server", f"finish_reason is {reply.finish_reason}")
    if exchange.ended is Ended.CUT and not has_end:
        yield Finding("stream_cut", exchange.detail)
    elif exchange.ended is Ended.COMPLETE and reply.server_error is None and not reply.malformed:
        yield from _missing_end(exchange, reply)


def _missing_end(exchange: Exchange, reply: Reply) -> Iterator[Finding]:
    is_stream = bool(exchange.events) or not exchange.body
    if not reply.choices:
        yield Finding("no_choices", (exchange.body or exchange.tail)[:200])
    elif is_stream and reply.finish_reason is None and not reply.is_done_marked:
        yield Finding("no_end", "neither finish_reason nor [DONE]")


def _leak_flags(reply: Reply, prompt: str, tools: Tools) -> Iterator[Finding]:
    arguments = "\n".join(_argument_texts(reply))
    names = "\n".join(call.name for call in reply.calls)
    places = (
        ("content", reply.content, tuple(tools)),
        ("reasoning", reply.reasoning, tuple(tools)),
        ("arguments", arguments, ()),
        ("name", names, ()),
    )
    for place, text, names_to_find in places:
        for leak in find_leaks(text, prompt=prompt, tools=names_to_find):
            flag = "markup_in_code" if leak.is_in_code else f"leak_{place}"
            yield Finding(flag, f"{leak.format} {leak.grade}: {leak.excerpt}")


def _argument_texts(reply: Reply) -> Iterator[str]:
    """Yield arguments as received, and their strings as decoded: escapes may hide markup."""
    for call in reply.calls:
        yield call.arguments
        if "\\u" in call.arguments:
            yield from strings_in(parse_arguments(call.arguments)[0])


def _value_flags(reply: Reply, truth: Truth) -> Iterator[Finding]:
    """Find planted values that aren't this session's.

    In reasoning only values with a known owner count: a model may think of an example.
    """
    arguments = "\n".join(call.arguments for call in reply.calls)
    own = set(truth.values)
    for place, text in (
        ("content", reply.content),
        ("arguments", arguments),
        ("reasoning", reply.reasoning),
    ):
        shaped = set(VALUE_PATTERN.findall(fold(text))) - own if truth.plant else set()
        named = {value for value in truth.foreign if value in text}
        for value in sorted(shaped | named)[:MOST_VALUES]:
            owner = _owner(value, truth)
            if owner:
                yield Finding("foreign_value", f"{value} in {place} belongs to {owner}")
            elif place != "reasoning":
                yield Finding("unknown_value", f"{value} in {place} was never planted")


def _owner(value: str, truth: Truth) -> str:
    if value in truth.foreign:
        return "another session"
    if truth.plant is None:
        return ""
    for run_index in range(truth.plant.run_index, -1, -1):
        owner = owner_of(value, truth.plant.root_seed, run_index)
        if owner and owner.session < truth.plant.sessions and owner.slot < truth.plant.slots:
            return f"session {owner.session} of run {run_index}"
    return ""


def _garbage_flags(reply: Reply, prompt: str, limits: GarbageLimits) -> Iterator[Finding]:
    is_cut = reply.finish_reason == "length"
    for flag in sorted(garbage_flags(reply.content, prompt=prompt, limits=limits, is_cut=is_cut)):
        yield Finding(flag, reply.content[:80])


def _form_flags(reply: Reply, tools: Tools) -> Iterator[Finding]:
    is_cut = reply.finish_reason == "length"
    for call in reply.calls:
        evidence = f"{call.name}({call.arguments[:200]})"
        for flag in sorted(form_flags(call, tools)):
            yield Finding("args_cut" if is_cut and flag == "args_not_json" else flag, evidence)
        if tools and call.name not in tools:
            yield Finding("undeclared_tool", evidence)


def _truth_flags(
    reply: Reply, context: ReplyContext, tools: Tools, *, has_foreign: bool
) -> Iterator[Finding]:
    """Compare the calls with the planted truth."""
    expectation = context.expectation
    if expectation is None or expectation.tool is None or not reply.calls:
        return
    if any(is_expected(call, expectation) for call in reply.calls):
        if len(reply.calls) > 1:
            yield Finding("extra_calls", f"{len(reply.calls)} calls")
        return
    named = [call for call in reply.calls if call.name == expectation.tool]
    if not named:
        yield Finding("unexpected_tool", f"{reply.calls[0].name} instead of {expectation.tool}")
    elif not has_foreign and any(form_flags(call, tools) <= _SOUND_FORM for call in named):
        yield Finding("wrong_arguments", f"{named[0].arguments[:200]} for {expectation.arguments}")


def _ending_flags(reply: Reply, context: ReplyContext, *, is_readable: bool) -> Iterator[Finding]:
    expectation = context.expectation
    is_cut = reply.finish_reason == "length"
    wants_call = expectation is not None and expectation.tool is not None
    if is_cut:
        yield Finding("finish_length")
    if reply.calls:
        if is_cut and any(parse_arguments(call.arguments)[1] for call in reply.calls):
            yield Finding("cut_by_length", "inside a call's arguments")
        if expectation is not None and not wants_call:
            yield Finding("still_calling", reply.calls[0].name)
        return
    if is_cut:
        yield Finding("cut_by_length", "max_tokens reached")
    elif not reply.content.strip() and (not wants_call or reply.is_empty):
        yield Finding("empty_reply")
    elif wants_call and is_readable:
        yield Finding("answered_instead", reply.content[:200])
    wanted = expectation.contains if expectation else None
    if wanted and not is_said(wanted, reply.content):
        yield Finding("answer_missing", f"{wanted} is not in {reply.content[:200]}")
