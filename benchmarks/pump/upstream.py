"""The same exchange over another pump of this kind, in an environment of its own: prints messages a second.

``python upstream.py HOPS COUNT``. Not part of the benchmarks' imports: it needs the ``xml-pipeline`` package,
which is installed beside the project and for this alone.
"""

import asyncio
import contextlib
import io
import sys
import uuid
from dataclasses import dataclass
from time import perf_counter
from typing import Any


def main() -> int:
    """Measure once."""
    hops, count = int(sys.argv[1]), int(sys.argv[2])
    print(asyncio.run(_measured(hops, count)))
    return 0


async def _measured(hops: int, count: int) -> float:
    from third_party.xmlable import xmlify  # type: ignore[import-not-found]
    from xml_pipeline.message_bus.message_state import HandlerResponse  # type: ignore[import-not-found]
    from xml_pipeline.message_bus.stream_pump import (  # type: ignore[import-not-found]
        ListenerConfig,
        OrganismConfig,
        StreamPump,
    )

    @xmlify
    @dataclass
    class Add:
        a: int
        b: int

    done = asyncio.Event()
    handled = 0

    async def last(payload: Add, metadata: Any) -> None:
        nonlocal handled
        handled += 1
        if handled == count:
            done.set()

    def forward(to: str) -> Any:
        async def handle(payload: Add, metadata: Any) -> Any:
            return HandlerResponse(payload=Add(a=payload.a, b=payload.b), to=to)

        return handle

    names = [f"hop{number}" for number in range(hops)]
    config = OrganismConfig(name="bench", max_concurrent_handlers=20, max_concurrent_pipelines=50)
    pump = StreamPump(config)
    for number, name in enumerate(names):
        handler = last if number == hops - 1 else forward(names[number + 1])
        pump.register_listener(ListenerConfig(name, "", "", name, payload_class=Add, handler=handler))
    body = (
        '<message xmlns="https://xml-pipeline.org/ns/envelope/v1"><meta><from>bench</from><to>hop0</to>'
        '<thread>{}</thread></meta><Add xmlns=""><A>1</A><B>2</B></Add></message>'
    )
    with contextlib.redirect_stdout(io.StringIO()):
        running = asyncio.create_task(pump.run())
        await asyncio.sleep(0.1)
        began = perf_counter()
        for _ in range(count):
            thread = str(uuid.uuid4())
            await pump.inject(body.format(thread).encode(), thread, "bench")
        await asyncio.wait_for(done.wait(), 120)
        took = perf_counter() - began
        running.cancel()
        await asyncio.wait({running}, timeout=5)
    return count * hops / took


if __name__ == "__main__":
    sys.exit(main())
