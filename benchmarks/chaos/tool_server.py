"""The tools of the chaos (python -m benchmarks.chaos.tool_server EFFECTS PORT...), one port for each replica.

Each call adds two lines to the file of effects: ``begin`` or ``end``, the time, the replica's number, the
tool and the message that the call is for. A call that has begun ends, also when its caller is gone.
"""

import asyncio
import os
import socket
import sys
import time

os.environ["FASTMCP_CHECK_FOR_UPDATES"] = "off"
os.environ["FASTMCP_SHOW_SERVER_BANNER"] = "false"

import uvicorn
from fastmcp import FastMCP

from .project import TOOLS


def _server(number: int, effects: int) -> FastMCP:
    server: FastMCP = FastMCP("desk")
    under_way: set[asyncio.Task[str]] = set()

    def add(tool: str, seconds: float) -> None:
        def record(what: str, text: str) -> None:
            os.write(effects, f"{what}\t{time.time():.4f}\t{number}\t{tool}\t{text}\n".encode())

        async def work(text: str) -> str:
            await asyncio.sleep(seconds)
            record("end", text)
            return f"{tool} did {text}"

        async def call(text: str) -> str:
            """Do something that stays done."""
            record("begin", text)
            task = asyncio.create_task(work(text))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            return await asyncio.shield(task)

        server.tool(name=tool, output_schema=None)(call)

    for tool, seconds in TOOLS.items():
        add(tool, seconds)
    return server


async def main(file: str, *ports: int) -> None:
    """Serve until the process is ended."""
    effects = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    async with asyncio.TaskGroup() as group:
        for number, port in enumerate(ports):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", port))
            app = _server(number, effects).http_app(path="/mcp", stateless_http=True)
            config = uvicorn.Config(app, log_config=None, access_log=False)
            group.create_task(uvicorn.Server(config).serve(sockets=[sock]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
