"""The peer: one tool of the same shape on a bare FastMCP server (python -m benchmarks.bare PORT)."""

import os
import socket
import sys

os.environ["FASTMCP_CHECK_FOR_UPDATES"] = "off"
os.environ["FASTMCP_SHOW_SERVER_BANNER"] = "false"

import uvicorn
from fastmcp import FastMCP

server: FastMCP = FastMCP("bare")


@server.tool(output_schema=None)
async def send_message(message: str, conversation_id: str | None = None) -> str:
    """Say it again."""
    return message


if __name__ == "__main__":
    # The same kind of socket as ours: the difference measured is the agent, not Nagle's delay.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", int(sys.argv[1])))
    config = uvicorn.Config(server.http_app(path="/mcp"), log_config=None, access_log=False)
    uvicorn.Server(config).run(sockets=[sock])
