"""`python -m payload.engine`: start the decode server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

import torch
import uvicorn

from payload.device.contract import Device
from payload.engine.assemble import Slots, assemble, choose_device
from payload.engine.config import EngineConfig, default_model
from payload.engine.server import Served, application
from payload.engine.service import Service
from payload.flags import read_flags
from payload.variant import load

LOG_FORMAT = "[%(asctime)s] %(message)s"
DRAIN_S = 25.0  # below the 30 s after which a unit is usually killed
GRACE_S = 2  # for connections that are left then: a request whose body never ends, say
CANNOT_START = 2


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m payload.engine", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30002)
    parser.add_argument("--model-path", default="glass-box")
    parser.add_argument("--served-model-name", default="dsv4-flash")
    parser.add_argument("--indexer", default="payload.indexer.transient", metavar="MODULE")
    parser.add_argument("--runner", default="payload.runner.captured", metavar="MODULE")
    parser.add_argument("--cache", default="payload.cache.bf16", metavar="MODULE")
    parser.add_argument("--max-batch", type=int, default=EngineConfig.max_batch)
    parser.add_argument("--cache-pages", type=int, default=EngineConfig.cache_pages)
    parser.add_argument("--context-tokens", type=int, default=EngineConfig.context_tokens)
    parser.add_argument("--typical-tokens", type=int, default=EngineConfig.typical_tokens)
    parser.add_argument(
        "--depth", type=int, default=0, help="dense layers beside the indexer; 0 = balance them"
    )
    return parser.parse_args(arguments)


def configure(options: argparse.Namespace, device: Device) -> EngineConfig:
    """Return the sizes that the options ask for."""
    return EngineConfig(
        model=replace(default_model(device.torch_device.type), depth=options.depth),
        max_batch=options.max_batch,
        context_tokens=options.context_tokens,
        cache_pages=options.cache_pages,
        typical_tokens=options.typical_tokens,
    )


def build_service(options: argparse.Namespace, log: logging.Logger) -> Service:
    """Load the variants, log which they are, and make the engine ready.

    Raises:
        ImportError: a module is missing or no variant.
        ValueError: a flag or a size that cannot be.
    """
    flags, warnings = read_flags(os.environ)
    for warning in warnings:
        log.warning("[flags] %s", warning)
    log.info("[flags] %s", flags)
    slots = Slots(
        load("indexer", options.indexer),
        load("runner", options.runner),
        load("cache", options.cache),
    )
    for loaded in slots.all():
        log.info("%s", loaded.marker)
    device = choose_device(flags)
    log.info("device: %s overlap=%s", device.torch_device, "on" if device.overlaps else "off")
    if device.torch_device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32 is exact for this model's weights
    assembly = assemble(configure(options, device), slots, flags, log, device=device)
    return Service(assembly, log)


class DrainingServer(uvicorn.Server):
    """Finishes what runs after a first SIGTERM; a second signal stops at once."""

    service: Service | None = None
    _drain: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain, or stop if that has begun."""
        if self.service is None or self.service.is_draining:
            super().handle_exit(sig, frame)
            return
        self.service.is_draining = True
        asyncio.get_running_loop().call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._drain = asyncio.ensure_future(self._finish())

    async def _finish(self) -> None:
        if self.service is not None:
            await self.service.drain(DRAIN_S)
        self.should_exit = True


def main(arguments: Sequence[str]) -> int:
    """Serve until told to stop; return 0 after a drain, 1 after a failure of the engine."""
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stderr)
    log = logging.getLogger("payload.engine")
    options = parse(arguments)
    try:
        service = build_service(options, log)
    except (ImportError, ValueError) as error:
        log.error("cannot start: %s", error)  # noqa: TRY400 - the message says it all
        return CANNOT_START
    served = Served(
        options.served_model_name, options.model_path, tuple(sys.orig_argv), dict(os.environ)
    )

    def stop() -> None:
        server.should_exit = True

    app = application(service, served, stop)
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = DrainingServer(config)
    server.service = service
    log.info("The server is fired up and ready to roll! http://%s:%d", options.host, options.port)
    server.run()
    log.info("stopped")
    return 1 if service.has_failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(main(sys.argv[1:]))
