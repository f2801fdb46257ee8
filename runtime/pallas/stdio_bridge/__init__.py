"""Serve a stdio MCP server of the project over HTTP: one process for all its callers.

``proxy`` passes requests on to it. Run as ``python -m pallas.stdio_bridge URL COMMAND...``, which
``servers:`` does for ``transport: stdio``.
"""
