"""`python -m payload.engine`: start the decode server."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType

import torch
import uvicorn

from payload.device.contract import Device
from payload.engine.assemble import Slots, assemble, choose_device
from payload.engine.config import EngineConfig, default_model
from payload.engine.listen import bind, refusal
from payload.engine.server import Served, application
from payload.engine.service import Service
from payload.flags import read_flags
from payload.variant import load

LOG_FORMAT = "[%(asctime)s] %(message)s"
DRAIN_S = 25.0  # below the 30 s after which a unit is usually killed
GRACE_S = 2  # for connections that are left then: a request whose body never ends, say
CANNOT_START = 2
PORTS = range(65_536)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="python -m payload.engine", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_port, default=30002, help="0 = one that is free")
    parser.add_argument("--model-path", default="glass-box")
    parser.add_argument("--served-model-name", type=_name, default="dsv4-flash")
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


def _port(written: str) -> int:
    port = int(written)
    if port not in PORTS:
        raise argparse.ArgumentTypeError(f"must be {PORTS[0]} to {PORTS[-1]}: {written}")
    return port


def _name(written: str) -> str:
    if not written.isprintable() or not written.strip():
        raise argparse.ArgumentTypeError(f"must be a name that requests can ask for: {written!r}")
    return written


def configure(options: argparse.Namespace, device: Device) -> EngineConfig:
    """Return the sizes that the options ask for.

    Raises:
        ValueError: a size that cannot be.
    """
    if options.depth == 1:
        raise ValueError("depth must be 0 (balance them) or at least 2: 1; choose another --depth")
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
        MemoryError: the sizes don't fit into memory.
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
        listeners = bind(options.host, options.port)
        try:
            return serve(options, build_service(options, log), listeners, log)
        finally:
            for listener in listeners:
                listener.close()
    except (ImportError, ValueError) as error:
        log.error("cannot start: %s", error)  # noqa: TRY400 - the message says it all
    except (MemoryError, torch.OutOfMemoryError) as error:
        lower = "lower --max-batch, --context-tokens or --cache-pages"
        log.error("cannot start: out of memory: %s; %s", error, lower)  # noqa: TRY400 - as above
    return CANNOT_START


def serve(
    options: argparse.Namespace,
    service: Service,
    listeners: list[socket.socket],
    log: logging.Logger,
) -> int:
    """Serve until told to stop; return the process's exit status.

    Raises:
        ValueError: another process took the port meanwhile.
    """
    served = Served(
        options.served_model_name, options.model_path, tuple(sys.orig_argv), dict(os.environ)
    )

    def stop() -> None:
        server.should_exit = True

    config = uvicorn.Config(
        application(service, served, stop),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = DrainingServer(config)
    server.service = service
    port = listeners[0].getsockname()[1]
    host = f"[{options.host}]" if ":" in options.host else options.host
    log.info("The server is fired up and ready to roll! http://%s:%d", host, port)
    try:
        server.run(listeners)
    except OSError as error:
        if server.started:
            raise
        raise ValueError(refusal(options.host, port, error)) from error
    log.info("stopped")
    return 1 if service.has_failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(main(sys.argv[1:]))
