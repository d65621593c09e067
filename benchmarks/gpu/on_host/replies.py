"""Count the wrong replies and tokens of a matrix: `-m benchmarks.gpu.on_host.replies RUN`.

fleetctl counts sessions by what a client can see; here each stored reply is compared with the
engine's oracle. A reply is spelled out again as the model must have said it: the client got its
text and its parsed calls, not its tokens. Prints the rows of a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetctl.serving.reclassify import stored_sessions
from fleetctl.trial.events import Exchange
from fleetctl.trial.reply import Call, Reply, assemble
from payload.engine.chat import markup_of
from payload.engine.oracle import expected
from payload.engine.tokenizer import CALLS_CLOSE, CALLS_OPEN, Tokenizer, standard_tokenizer


@dataclass
class Count:
    """What was counted of a cell.

    Attributes:
        corrupted: sessions that fleetctl calls corrupt, by trial.
        sessions: by trial.
        unhealthy: sessions that did not end as they should, by trial.
        wrong_sessions: sessions with a wrong reply, by trial.
        replies: that were compared.
        wrong_replies: that differ from the oracle's.
        tokens: of all replies.
        wrong_tokens: that differ at their place, and those too many or missing.
    """

    corrupted: list[int] = field(default_factory=list)
    sessions: list[int] = field(default_factory=list)
    unhealthy: list[int] = field(default_factory=list)
    wrong_sessions: list[int] = field(default_factory=list)
    replies: int = 0
    wrong_replies: int = 0
    tokens: int = 0
    wrong_tokens: int = 0

    def row(self, cell: str) -> str:
        """Return the cell's row of the table."""
        levels = " | ".join(level.split("=")[1] for level in cell.split(","))
        bad, all_, odd = sum(self.corrupted), sum(self.sessions), sum(self.unhealthy)
        by_trial = " ".join(map(str, self.corrupted))
        cells = [f"{bad}/{all_} = {bad / all_:.1%}", by_trial, f"{odd}/{all_}"]
        if self.tokens:
            per_million = round(1e6 * self.wrong_tokens / self.tokens)
            cells += [f"{sum(self.wrong_sessions)}/{all_}"]
            cells += [f"{self.wrong_replies}/{self.replies}", f"{per_million:,}"]
        return f"| {levels} | {' | '.join(cells)} |"


def tokens_of(reply: Reply, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the tokens that the model said, as far as its text and calls tell."""
    text = reply.content
    if reply.calls:
        blocks = [markup_of(call.name, arguments_of(call)) for call in reply.calls]
        text += "\n".join((f"\n\n{CALLS_OPEN}", *blocks, CALLS_CLOSE))
    said = [piece.token for piece in tokenizer.pieces(text, markup=True)]
    return (*said, *(() if reply.finish_reason == "length" else (tokenizer.eos,)))


def arguments_of(call: Call) -> dict[str, Any]:
    """Return a call's arguments; what is no object is one argument, and so a wrong one."""
    try:
        found = json.loads(call.arguments)
    except ValueError:
        found = call.arguments
    return found if isinstance(found, dict) else {"arguments": found}


def count_exchange(exchange: Exchange, count: Count, tokenizer: Tokenizer) -> None:
    """Compare one reply with the oracle's."""
    right = expected(json.loads(exchange.request), tokenizer).tokens
    said = tokens_of(assemble(exchange), tokenizer)
    wrong = sum(a != b for a, b in zip(said, right, strict=False)) + abs(len(said) - len(right))
    count.replies += 1
    count.tokens += len(said)
    count.wrong_replies += bool(wrong)
    count.wrong_tokens += wrong


def counted(run: Path) -> Iterator[tuple[str, Path]]:
    """Yield the cell and the folder of each trial that counts."""
    for line in (run / "events.jsonl").read_text("utf-8").splitlines():
        event: dict[str, Any] = json.loads(line)
        if event["kind"] == "counted":
            yield event["cell"], run / event["trial"]


def counts_of(run: Path) -> dict[str, Count]:
    """Return the counts of each cell of a run."""
    tokenizer = standard_tokenizer()
    found: dict[str, Count] = {}
    for cell, folder in counted(run):
        count = found.setdefault(cell, Count())
        facts = json.loads((folder / "facts.json").read_text("utf-8"))
        count.corrupted.append(facts["corrupted"])
        count.sessions.append(facts["counted"])
        count.unhealthy.append(facts["counted"] - facts["counts"]["done"])
        count.wrong_sessions.append(0)
        for file in sorted(folder.glob("transcripts.*.jsonl.gz")):
            for session in stored_sessions(file):
                before = count.wrong_replies
                for exchange in session.exchanges:
                    count_exchange(exchange, count, tokenizer)
                count.wrong_sessions[-1] += count.wrong_replies > before
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    options = parser.parse_args(arguments)
    for cell, count in sorted(counts_of(options.run).items()):
        print(count.row(cell))
    return 0


if __name__ == "__main__":
    sys.exit(main())
