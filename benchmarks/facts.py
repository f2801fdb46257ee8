"""What a server process holds, told by itself on a port of its own: memory and handles."""

import asyncio
import gc
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import psutil

_tasks: set[asyncio.Task[Any]] = set()


@dataclass(frozen=True, slots=True)
class Facts:
    """Bytes that no other process shares, open descriptors, child processes, asyncio tasks by their code."""

    memory: int
    descriptors: int
    children: int
    tasks: dict[str, int]

    @property
    def handles(self) -> tuple[object, ...]:
        """All but the memory."""
        return self.descriptors, self.children, self.tasks


def serve(port: int) -> None:
    """Answer each client of ``port``; called in the loop whose tasks are counted, or beside it."""
    loop = asyncio.get_event_loop()
    loop.call_soon_threadsafe(
        lambda: _tasks.add(loop.create_task(asyncio.start_server(_tell, "127.0.0.1", port)))
    )


async def _tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    gc.collect()
    me = psutil.Process()
    facts = {
        "memory": me.memory_full_info().uss,
        "descriptors": me.num_fds(),
        "children": len(me.children(recursive=True)),
        "tasks": Counter(_code(task) for task in asyncio.all_tasks()),
    }
    writer.write(json.dumps(facts).encode())
    writer.close()


def _code(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "?")


async def ask(port: int) -> Facts:
    """The facts now."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        text = await reader.read()
        writer.close()
        await writer.wait_closed()
    return Facts(**json.loads(text))


async def settled(port: int, quiet: float = 2.0, deadline: float = 60.0) -> Facts:
    """The facts once handles have stayed as they are for ``quiet`` seconds, or at the deadline."""
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline
    facts, since = await ask(port), loop.time()
    while (now := loop.time()) - since < quiet and now < end:
        await asyncio.sleep(0.2)
        fresh = await ask(port)
        if fresh.handles != facts.handles:
            since = loop.time()
        facts = fresh
    return facts
