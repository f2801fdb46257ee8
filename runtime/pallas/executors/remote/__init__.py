"""Agents that are somebody else's MCP endpoint.

``RemoteExecutor`` is in ``executor``; nothing of MCP is imported before it is loaded.
"""
