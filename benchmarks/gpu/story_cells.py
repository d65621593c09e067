"""One cell of the story: an engine of some variants under a load, and how often it is wrong."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from payload.device.contract import Device
from payload.device.cpu import CpuDevice
from payload.device.cuda import CudaDevice
from payload.engine.assemble import Assembly, Slots, assemble
from payload.engine.bench_rates import MODEL, Session, Trial
from payload.engine.chat import render
from payload.engine.config import EngineConfig, default_model
from payload.engine.oracle import expected
from payload.engine.program import Program, compile_program
from payload.engine.request import parse_request
from payload.engine.sequence import Ending
from payload.engine.sequence import Sequence as Row
from payload.engine.tokenizer import Piece, Tokenizer
from payload.flags import Flags
from payload.variant import load

LOG = logging.getLogger("benchmarks.gpu.story")
MAX_TOKENS = 48  # the longest right reply has 38
INSTRUMENTS = ("none", "GE_DIFF", "canary")


@dataclass(frozen=True)
class Load:
    """The model's knobs and the workload.

    Attributes:
        depth: dense layers that the main stream runs beside the indexer.
        top_k: positions that attention sees.
        words: of the notes that fill each session's context.
        tf32: matrix products in TF32, which is exact for this model's weights.
        max_batch: rows at once.
        context_tokens: the longest context.
        sessions: at once.
        rounds: of each session.
        main_first: whether the main stream has the higher priority in graphs.
        splits: parts in which the attention's query is summed.
    """

    depth: int
    top_k: int = 64
    words: int = 3000
    tf32: bool = True
    max_batch: int = 48
    context_tokens: int = 4096
    sessions: int = 40
    rounds: int = 3
    main_first: bool = True
    splits: int = 4

    def config(self, device_type: str) -> EngineConfig:
        """Return the engine's sizes."""
        knobs = {"depth": self.depth, "top_k": self.top_k, "splits": self.splits}
        model = replace(default_model(device_type), **knobs)
        config = EngineConfig(model, self.max_batch, self.context_tokens)
        return replace(config, cache_pages=self.max_batch * config.pages_per_row + 64)


@dataclass(frozen=True)
class Cell:
    """One combination of the factors.

    Attributes:
        runner: `eager`, `captured` or `ordered_streams` (which is captured, too).
        keys: `bf16` or `fp8`.
        overlap: whether the indexer has a stream of its own.
        instrument: one of INSTRUMENTS.
        indexer: variant name.
    """

    runner: str = "captured"
    keys: str = "bf16"
    overlap: bool = True
    instrument: str = "none"
    indexer: str = "transient"

    @property
    def flags(self) -> Flags:
        """The process's flags."""
        return Flags(
            overlap=self.overlap,
            ge_diff=self.instrument == "GE_DIFF" or None,
            idxk_canary=self.instrument == "canary" or None,
        )


class RememberingTokenizer(Tokenizer):
    """Cuts a text once: every cell is asked the same, and must not wait for Python."""

    def __init__(self) -> None:
        words = resources.files("payload.engine").joinpath("vocabulary.txt")
        super().__init__(words.read_text(encoding="utf-8").split())
        self._known: dict[tuple[str, bool], list[Piece]] = {}

    def pieces(self, text: str, *, markup: bool = False) -> list[Piece]:
        """Return the tokens of a text with their places."""
        key = (text, markup)
        if key not in self._known:
            self._known[key] = super().pieces(text, markup=markup)
        return list(self._known[key])


@dataclass(frozen=True)
class Prepared:
    """A request as the engine takes it in, and the right reply.

    Attributes:
        tokens: the prompt's.
        program: the reply, compiled.
        right: the expected reply's tokens.
    """

    tokens: tuple[int, ...]
    program: Program
    right: tuple[int, ...]


class Oracle:
    """What is asked and what the replies must be, found once per conversation."""

    def __init__(self, file: Path | None = None) -> None:
        self.tokenizer = RememberingTokenizer()
        self._known: dict[str, Prepared] = {}
        if file is not None and file.exists():
            self._known = pickle.loads(file.read_bytes())

    def prepare(self, knobs: Load, seeds: Sequence[int], file: Path) -> None:
        """Find all that right replies lead to, and keep it in a file: no GPU should wait for it."""
        for seed in seeds:
            dry = DryTrial(self, knobs, seed)
            for session in dry.sessions:
                dry.walk(session)
        file.write_bytes(pickle.dumps(self._known))

    def prepared(self, body: dict[str, Any]) -> Prepared:
        """Return a request, compiled, with its expected reply."""
        key = hashlib.sha1(json.dumps(body).encode(), usedforsecurity=False).hexdigest()
        if key not in self._known:
            request = parse_request(body, model=MODEL)
            prompt = render(request, self.tokenizer)
            program = compile_program(request, prompt, self.tokenizer)
            right = tuple(expected(body, self.tokenizer).tokens)
            self._known[key] = Prepared(tuple(prompt.tokens), program, right)
        return self._known[key]


class StoryTrial(Trial):
    """The engine's own trial, with an oracle that remembers.

    The engine's queue is filled directly: rendering a long conversation takes longer than the
    steps of its reply, and device time is lent.
    """

    def __init__(self, assembly: Assembly, oracle: Oracle, knobs: Load, seed: int) -> None:
        self.oracle = oracle
        sizes = {"sessions": knobs.sessions, "rounds": knobs.rounds, "words": knobs.words}
        super().__init__(assembly, **sizes, seed=seed)

    def _ask(self, session: Session) -> None:
        session.tokens = []
        prepared = self.oracle.prepared(session.body)
        session.right = prepared.right

        def deliver(token: int, ending: Ending | None) -> None:
            session.tokens.append(token)
            if ending is not None:
                self._ended(session, ending)

        engine = self.assembly.engine
        room = engine.config.context_tokens - len(prepared.tokens) - len(prepared.program.entries)
        number = next(engine._numbers)  # noqa: SLF001 - see the class
        limit = min(room, MAX_TOKENS)  # what a client allows; a wrong reply may not find its end
        sequence = Row(number, prepared.tokens, prepared.program, limit)
        engine._mail.append((sequence, deliver))  # noqa: SLF001 - see the class


class DryTrial(StoryTrial):
    """Conversations without an engine: every reply is the right one."""

    def __init__(self, oracle: Oracle, knobs: Load, seed: int) -> None:
        Trial.__init__(
            self,
            None,  # type: ignore[arg-type]
            sessions=knobs.sessions,
            rounds=knobs.rounds,
            words=knobs.words,
            seed=seed,
        )
        self.oracle = oracle

    def walk(self, session: Session) -> None:
        """Ask for every round's reply."""
        for number in range(1, self.rounds + 1):
            self.oracle.prepared(session.body)
            session.round = number
            if number < self.rounds:
                session.messages += self._looked_up(session)


def device_for(cell: Cell, knobs: Load) -> Device:
    """Return the GPU if there is one, else the CPU that stands in for one."""
    if torch.cuda.is_available():
        return CudaDevice(overlap=cell.overlap, main_first=knobs.main_first)
    return CpuDevice(overlap=cell.overlap)


def stand_up(cell: Cell, knobs: Load, device: Device) -> Assembly:
    """Assemble and capture a cell's engine."""
    torch.set_float32_matmul_precision("high" if knobs.tf32 else "highest")
    slots = Slots(
        load("indexer", f"payload.indexer.{cell.indexer}"),
        load("runner", f"payload.runner.{cell.runner}"),
        load("cache", f"payload.cache.{cell.keys}"),
    )
    config = knobs.config(device.torch_device.type)
    return assemble(config, slots, cell.flags, LOG, device=device)


def clean_up() -> None:
    """Give all memory back, so that each cell's allocator starts empty."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def run_cell(cell: Cell, knobs: Load, oracle: Oracle, *, trials: int) -> dict[str, object]:
    """Return a cell's counts over some trials, and what its instruments saw."""
    started = time.perf_counter()
    clean_up()
    device = device_for(cell, knobs)
    assembly = stand_up(cell, knobs, device)
    assembly.engine.tokenizer = oracle.tokenizer
    counts = [StoryTrial(assembly, oracle, knobs, seed).run() for seed in range(trials)]
    device.close()
    totals = {
        name: sum(count[name] for count in counts)
        for name in ("corrupt", "sessions", "wrong_tokens", "tokens", "steps", "seconds")
    }
    return {
        **vars(cell),
        **totals,
        "wrong_per_million": round(1e6 * totals["wrong_tokens"] / totals["tokens"]),
        "corrupt_by_trial": [count["corrupt"] for count in counts],
        "findings": assembly.engine.findings(),
        "wall_s": round(time.perf_counter() - started, 2),
    }
