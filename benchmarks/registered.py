"""A fleet of agents that were registered, not written down: a program for ``front``."""

import asyncio
import sys
from pathlib import Path

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.handlers import PromptRequest


class Echo:
    """Answers with what it was asked."""

    def __init__(self, number: int) -> None:
        self.id = f"echo{number}"
        self.capabilities = ("echo", f"group{number % 10}")

    async def prompt(self, request: PromptRequest) -> str:
        """The text itself."""
        return request.text


async def serve(root: Path, count: int) -> None:
    """A fleet with so many of them, until the program is ended."""
    fleet = Fleet(load_project(root), dev=True)
    for number in range(count):
        fleet.register(Echo(number))
    await fleet.start()
    print("running", flush=True)
    try:
        await asyncio.Event().wait()
    finally:
        await fleet.stop()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
