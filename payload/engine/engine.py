"""The engine: admit, prefill, step, deliver; one step at a time, on a thread of its own."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from payload.cache.contract import PADDING_PAGE, Cache
from payload.cache.layout import PAGE_TOKENS
from payload.engine.chat import least_tokens, render
from payload.engine.config import EngineConfig
from payload.engine.model import GlassBox, Prefill
from payload.engine.program import compile_program
from payload.engine.request import BadRequestError, ChatRequest
from payload.engine.scheduler import Scheduler
from payload.engine.sequence import Ending, Sequence, pointers
from payload.engine.tokenizer import ASSISTANT, Tokenizer
from payload.runner.contract import Batch, Runner

LOG_EVERY_STEPS = 200
Deliver = Callable[[int, Ending | None], None]


@dataclass(frozen=True)
class Loads:
    """How busy the engine is."""

    running: int
    waiting: int
    free_pages: int
    steps: int
    tokens: int


@dataclass(frozen=True)
class Ticket:
    """A request that was taken.

    Attributes:
        sequence: its state; belongs to the engine's thread.
        prompt_tokens: what the prefill writes: the conversation and its program.
        program_tokens: the program's share of it.
    """

    sequence: Sequence
    prompt_tokens: int
    program_tokens: int


class Engine:
    """Runs sequences to their end.

    `submit` and `cancel` may be called from any thread; `step` belongs to one.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        tokenizer: Tokenizer,
        model: GlassBox,
        cache: Cache,
        runner: Runner,
        log: logging.Logger,
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self._model = model
        self._cache = cache
        self._runner = runner
        self._log = log
        self._scheduler = Scheduler(config)
        self._deliver: dict[int, Deliver] = {}
        self._numbers = itertools.count()
        self._mail: deque[tuple[Sequence, Deliver | None]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self._steps = 0
        self._tokens = 0
        self._strays = 0

    def submit(self, request: ChatRequest, deliver: Deliver) -> Ticket:
        """Queue a request; `deliver(token, ending)` is called on the engine's thread.

        Raises:
            BadRequestError: the conversation does not fit into the context.
        """
        most = min(self.config.context_tokens, (self.config.cache_pages - 1) * PAGE_TOKENS)
        # In the order of what it costs to know: who waits for this thread must not wait long.
        _check_fits(least_tokens(request, self.tokenizer), most, "at least ")
        prompt = render(request, self.tokenizer)
        _check_fits(len(prompt.tokens), most, "more than ")
        program = compile_program(request, prompt, self.tokenizer)
        fixed = len(prompt.tokens) + len(program.entries)
        _check_fits(fixed, most)
        room = most - fixed
        limit = room if request.max_tokens is None else min(room, request.max_tokens)
        sequence = Sequence(next(self._numbers), prompt.tokens, program, limit)
        with self._wake:
            self._mail.append((sequence, deliver))
            self._wake.notify()
        return Ticket(sequence, fixed, len(program.entries))

    def cancel(self, ticket: Ticket) -> None:
        """Forget a request; its row and pages are free at the next step."""
        with self._wake:
            self._mail.append((ticket.sequence, None))
            self._wake.notify()

    def loads(self) -> Loads:
        """Return how busy the engine is."""
        with self._wake:
            queued = sum(1 for _, deliver in self._mail if deliver is not None)
        return Loads(
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting) + queued,
            free_pages=self._scheduler.free_pages,
            steps=self._steps,
            tokens=self._tokens,
        )

    def findings(self) -> dict[str, object]:
        """Return what the instruments have seen: GE_DIFF by bucket, and the canary's count."""
        return {"ge_diff": self._runner.findings(), "stray_writes": self._strays}

    def serve(self) -> None:
        """Step while there is work, sleep while there is none, until `close`."""
        while not self._closing:
            if not self.step():
                with self._wake:
                    self._wake.wait_for(lambda: self._mail or self._closing)

    def close(self) -> None:
        """Let `serve` return."""
        with self._wake:
            self._closing = True
            self._wake.notify()

    def step(self) -> bool:
        """Advance every running sequence by one token; return whether there was any."""
        self._read_mail()
        self._scheduler.grow()
        for sequence in self._scheduler.admit():
            self._prefill(sequence)
        running = list(self._scheduler.running)
        if not running:
            return False
        for sequence, token in zip(running, self._decode(running), strict=True):
            self._say(sequence, token)
        self._count(len(running))
        return True

    def _count(self, rows: int) -> None:
        self._steps += 1
        self._tokens += rows
        if self._steps % LOG_EVERY_STEPS == 0:
            message = "decode: running %d, waiting %d, free pages %d, steps %d, tokens %d"
            waiting, free = len(self._scheduler.waiting), self._scheduler.free_pages
            self._log.info(message, rows, waiting, free, self._steps, self._tokens)

    def _read_mail(self) -> None:
        with self._wake:
            mail = list(self._mail)
            self._mail.clear()
        for sequence, deliver in mail:
            if deliver is not None:
                self._deliver[sequence.number] = deliver
                self._scheduler.add(sequence)
            elif sequence.ending is None:
                sequence.ending = Ending.ABORT
                self._scheduler.remove(sequence)
                self._deliver.pop(sequence.number, None)

    def _prefill(self, sequence: Sequence) -> None:
        tokens = sequence.context
        positions = torch.arange(len(tokens))
        pages = torch.tensor(sequence.pages)
        slots = pages[positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
        self._cache.expect(sequence.pages)
        where = self._cache.pools.kv[0].device
        followed = torch.tensor(pointers(sequence, len(tokens)))
        context = Prefill(torch.tensor(tokens), followed, slots)
        self._model.prefill(Prefill(*(part.to(where) for part in vars(context).values())))

    def _decode(self, running: list[Sequence]) -> list[int]:
        first = self.tokenizer.control[ASSISTANT]
        rows = tuple(sequence.row(first) for sequence in running)
        self._cache.expect([PADDING_PAGE, *(row.slot // PAGE_TOKENS for row in rows)])
        tokens = self._runner.step(Batch(rows, self._scheduler.table()))
        for stray in self._cache.verify():
            self._strays += 1
            self._log.error("[canary] stray write layer=%d page=%d", stray.layer, stray.page)
        return tokens

    def _say(self, sequence: Sequence, token: int) -> None:
        sequence.said.append(token)
        if token == self.tokenizer.eos:
            sequence.ending = Ending.STOP
        elif len(sequence.said) >= sequence.max_new:
            sequence.ending = Ending.LENGTH
        deliver = self._deliver[sequence.number]
        if sequence.ending is not None:
            self._scheduler.remove(sequence)
            del self._deliver[sequence.number]
        deliver(token, sequence.ending)


def _check_fits(tokens: int, most: int, about: str = "") -> None:
    """Refuse a conversation that leaves no token for a reply.

    Raises:
        BadRequestError: it takes `most` tokens or more.
    """
    if tokens >= most:
        message = f"the conversation takes {about}{tokens} tokens of {most}"
        raise BadRequestError(message, code="context_length_exceeded")
