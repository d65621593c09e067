"""The service answers everybody it took in, also when its engine fails meanwhile."""

import asyncio
import logging
import threading

from payload.engine.request import parse_request
from payload.engine.sequence import Ending
from payload.engine.service import Service
from payload.engine.testing import MODEL, small_engine


def test_a_request_taken_in_while_the_engine_fails_is_told_so():
    assembly = small_engine(runner="eager")
    engine = assembly.engine
    service = Service(assembly, logging.getLogger("payload.engine.test_service"))
    request = parse_request({"messages": [{"role": "user", "content": "hi"}]}, model=MODEL)
    taken, failed = threading.Event(), threading.Event()
    submit = engine.submit

    def submit_and_fail(asked, deliver):
        ticket = submit(asked, deliver)
        taken.set()
        assert failed.wait(30)
        return ticket

    def step():
        taken.wait(30)
        raise RuntimeError("out of memory, say")

    engine.submit, engine.step = submit_and_fail, step

    async def ask():
        service.start(failed.set)
        stream = service.open(request)
        async with asyncio.timeout(30):
            return [ending async for _, ending in stream.tokens()]

    try:
        assert asyncio.run(ask()) == [Ending.ABORT]
    finally:
        service.stop()
