"""Hooks that every MCP client of Pallas needs: limits on what servers send, and on misbehaving stdio
servers.

- ``library_hooks`` installs and removes wrappers around functions of fast-agent and the MCP SDK.
- ``mcp_seam`` bounds schemas, bodies, messages and lines in the SDK's client.
- ``stdio_seam`` ends stdio servers that write something else than messages.
"""
