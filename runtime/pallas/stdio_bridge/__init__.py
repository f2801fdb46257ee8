"""A stdio MCP server of the project, served over HTTP: one program for all who call it.

Run as ``python -m pallas.stdio_bridge URL COMMAND...``, which ``servers:`` does for ``transport: stdio``.
"""
