"""Owns a worker that does not want to end, tells its processes, and waits to be killed; run as a program."""

import asyncio
import sys
from pathlib import Path

from support.workers import say, working


async def main(root: Path) -> None:
    """Print the pids of the worker and of what it started."""
    async with working(root, env={"WORKER_MODE": "stays"}) as executor:
        print(executor.pid, await say(executor, "child"), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
