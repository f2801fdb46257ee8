"""Hooks that every MCP client of Pallas needs: limits on what servers send, and on misbehaving stdio
servers.

- ``library_hooks`` installs wrappers around functions of fast-agent and the MCP SDK.
- ``mcp_seam`` bounds schemas, bodies, messages and lines in the SDK's client.
- ``passing_streams`` wraps the streams of a transport.
- ``stdio_seam`` ends stdio servers that write something else than messages.
- ``import_client`` imports the SDK's client in one thread at a time.
"""

from importlib import import_module
from threading import Lock

_IMPORTING = Lock()


def import_client() -> None:
    """Import the client of the MCP SDK, in a thread that may wait for it (about 0.5 s).

    Its modules import each other: where two threads import them at the same time, one of them fails.
    """
    with _IMPORTING:
        import_module("mcp.client.streamable_http")
