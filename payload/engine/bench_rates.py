"""How often a combination of variants is wrong, counted in sessions and tokens, without HTTP.

    python -m payload.engine.bench_rates transient/captured/bf16 transient/eager/bf16 --trials 3

Sessions follow the tool-calling workload: a planted order is looked up, its result names the
next one, the last result a tracking code. A session whose tokens differ from the oracle's is
corrupt and ends there, as a client would end it.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from payload.engine.assemble import Assembly, Slots, assemble, choose_device
from payload.engine.config import EngineConfig, default_model
from payload.engine.conversations import opaque_value
from payload.engine.oracle import expected
from payload.engine.request import parse_request
from payload.engine.sequence import Ending
from payload.flags import read_flags
from payload.variant import load

MODEL = "glass-box"
WORDS = ("amber", "river", "stone", "lake", "moon", "paper", "bridge", "candle", "harbour", "salt")
TOOL = {
    "type": "function",
    "function": {
        "name": "lookup_order",
        "description": "Look up one order by its id.",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
    },
}


@dataclass
class Session:
    """One conversation and what came of it."""

    values: list[str]
    messages: list[dict[str, Any]]
    round: int = 0
    tokens: list[int] = field(default_factory=list)
    right: tuple[int, ...] = ()
    said: int = 0
    wrong: int = 0

    @property
    def body(self) -> dict[str, Any]:
        """The next request."""
        return {"messages": self.messages, "tools": [TOOL], "max_tokens": 1800}


class Trial:
    """Sessions that run at once against one engine."""

    def __init__(
        self, assembly: Assembly, *, sessions: int, rounds: int, words: int, seed: int
    ) -> None:
        self.assembly = assembly
        self.rounds = rounds
        draw = random.Random(seed)
        self.sessions = [self._session(draw, words) for _ in range(sessions)]

    def _session(self, draw: random.Random, words: int) -> Session:
        values = [opaque_value(draw) for _ in range(self.rounds)]
        notes = " ".join(draw.choice(WORDS) for _ in range(words))
        system = f"You are the clerk of an order desk. Use lookup_order. Desk notes: {notes}"
        question = f"Please look up order {values[0]}."
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        ]
        return Session(values, messages)

    def run(self) -> dict[str, Any]:
        """Run to the end and return the counts."""
        for session in self.sessions:
            self._ask(session)
        started, cpu_started = time.perf_counter(), time.process_time()
        steps = 0
        while self.assembly.engine.step():
            steps += 1
        seconds = time.perf_counter() - started
        tokens = sum(session.said for session in self.sessions)
        wrong = sum(session.wrong for session in self.sessions)
        corrupt = sum(1 for session in self.sessions if session.wrong)
        return {
            "corrupt": corrupt,
            "sessions": len(self.sessions),
            "wrong_tokens": wrong,
            "tokens": tokens,
            "wrong_per_million": round(1e6 * wrong / tokens),
            "steps": steps,
            "seconds": round(seconds, 3),
            "cpu_s": round(time.process_time() - cpu_started, 3),
            "tokens_per_s": round(tokens / seconds),
        }

    def _ask(self, session: Session) -> None:
        session.tokens = []
        session.right = expected(session.body, self.assembly.engine.tokenizer).tokens
        request = parse_request(session.body, model=MODEL)

        def deliver(token: int, ending: Ending | None) -> None:
            session.tokens.append(token)
            if ending is not None:
                self._ended(session, ending)

        self.assembly.engine.submit(request, deliver)

    def _ended(self, session: Session, ending: Ending) -> None:
        pairs = zip(session.tokens, session.right, strict=False)
        longer = abs(len(session.tokens) - len(session.right))
        session.said += len(session.tokens)
        session.wrong += sum(a != b for a, b in pairs) + longer
        session.round += 1
        if session.wrong or session.round == self.rounds or ending is not Ending.STOP:
            return
        session.messages += self._looked_up(session)
        self._ask(session)

    def _looked_up(self, session: Session) -> list[dict[str, Any]]:
        value = session.values[session.round - 1]
        is_last = session.round == self.rounds - 1
        following = {"tracking_code" if is_last else "next_order_id": session.values[session.round]}
        call_id = f"call_{session.round}"
        function = {"name": "lookup_order", "arguments": json.dumps({"order_id": value})}
        call = {"id": call_id, "type": "function", "function": function}
        content = json.dumps({"order_id": value, **following})
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": content},
        ]


def main(arguments: Sequence[str]) -> int:
    """Print one JSON line per trial of each combination."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    for combination in options.combinations:
        for line in _measure(combination, options):
            print(json.dumps(line), flush=True)
    return 0


def _measure(combination: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    flags, _ = read_flags(os.environ)
    names = dict(zip(("indexer", "runner", "cache"), combination.split("/"), strict=True))
    slots = Slots(*(load(family, f"payload.{family}.{name}") for family, name in names.items()))
    device = choose_device(flags)
    model = replace(default_model(device.torch_device.type), depth=options.depth)
    sizes = ("max_batch", "context_tokens", "cache_pages", "typical_tokens")
    config = EngineConfig(model=model, **{size: getattr(options, size) for size in sizes})
    started = time.perf_counter()
    assembly = assemble(config, slots, flags, logging.getLogger("payload.engine"), device=device)
    facts = {**names, "overlap": device.overlaps, "depth": assembly.config.model.depth}
    facts["ready_s"] = round(time.perf_counter() - started, 2)
    for trial in range(options.trials):
        work = {"sessions": options.sessions, "rounds": options.rounds, "words": options.words}
        yield facts | Trial(assembly, **work, seed=options.seed + trial).run()
    if findings := assembly.engine.findings()["ge_diff"]:
        yield {**names, "ge_diff": findings}
    device.close()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m payload.engine.bench_rates")
    parser.add_argument(
        "combinations",
        nargs="*",
        default=["transient/captured/bf16"],
        metavar="INDEXER/RUNNER/CACHE",
    )
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=300)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depth", type=int, default=0)
    for size in ("max_batch", "context_tokens", "cache_pages", "typical_tokens"):
        option = f"--{size.replace('_', '-')}"
        parser.add_argument(option, type=int, default=getattr(EngineConfig, size))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
