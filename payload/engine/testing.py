"""Small engines for tests, and what a test does with them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from payload.device.contract import Device
from payload.device.cpu import CpuDevice
from payload.engine.assemble import Assembly, Slots, assemble
from payload.engine.config import EngineConfig, ModelConfig
from payload.engine.engine import Ticket
from payload.engine.request import parse_request
from payload.engine.sequence import Ending
from payload.flags import Flags
from payload.variant import load

MODEL = "glass-box"
SMALL = EngineConfig(model=ModelConfig(depth=2), max_batch=8, context_tokens=1024, cache_pages=200)


def small_engine(
    *,
    indexer: str = "transient",
    runner: str = "captured",
    cache: str = "bf16",
    config: EngineConfig = SMALL,
    flags: Flags | None = None,
    device: Device | None = None,
) -> Assembly:
    """Return an engine of the named variants; its device must be closed."""
    slots = Slots(
        load("indexer", f"payload.indexer.{indexer}"),
        load("runner", f"payload.runner.{runner}"),
        load("cache", f"payload.cache.{cache}"),
    )
    log = logging.getLogger("payload.engine.testing")
    chosen = CpuDevice(overlap=True) if device is None else device
    return assemble(config, slots, flags or Flags(), log, device=chosen)


@dataclass
class Heard:
    """What came of one request."""

    ticket: Ticket | None = None
    tokens: list[int] = field(default_factory=list)
    ending: Ending | None = None

    def deliver(self, token: int, ending: Ending | None) -> None:
        """Take a token from the engine."""
        self.tokens.append(token)
        self.ending = ending


def ask(assembly: Assembly, body: dict[str, Any]) -> Heard:
    """Queue a request."""
    heard = Heard()
    heard.ticket = assembly.engine.submit(parse_request(body, model=MODEL), heard.deliver)
    return heard


def answers(assembly: Assembly, bodies: Iterable[dict[str, Any]]) -> list[Heard]:
    """Run requests together to their ends."""
    heard = [ask(assembly, body) for body in bodies]
    while assembly.engine.step():
        pass
    return heard
