"""The peer: the same tools on a bare FastMCP server (python -m benchmarks.bare PORT [FACTS_PORT])."""

import asyncio
import json
import os
import socket
import sys
from datetime import UTC, datetime
from typing import Any

os.environ["FASTMCP_CHECK_FOR_UPDATES"] = "off"
os.environ["FASTMCP_SHOW_SERVER_BANNER"] = "false"

import uvicorn
from fastmcp import FastMCP

from . import facts

server: FastMCP = FastMCP("bare")


@server.tool(output_schema=None)
async def send_message(
    message: str,
    images: list[dict[str, str]] | None = None,
    conversation_id: str | None = None,
    history: list[dict[str, Any]] | None = None,
    stream_text: bool = False,
) -> str:
    """Say it again."""
    return message


@server.tool(output_schema=None)
async def get_health() -> str:
    """Be well."""
    return json.dumps({"status": "ok", "timestamp": datetime.now(UTC).isoformat()})


async def main(port: int, facts_port: int | None = None) -> None:
    """Serve until the process is ended."""
    if facts_port is not None:
        facts.serve(facts_port)
    # The same kind of socket as ours: the difference measured is the agent, not Nagle's delay.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    config = uvicorn.Config(server.http_app(path="/mcp"), log_config=None, access_log=False)
    await uvicorn.Server(config).serve(sockets=[sock])


if __name__ == "__main__":
    loop_factory = uvicorn.Config("").get_loop_factory()
    asyncio.run(main(*map(int, sys.argv[1:])), loop_factory=loop_factory)
