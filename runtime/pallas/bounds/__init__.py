"""Limits on what callers, servers and models send (docs/security.md, "Limits").

A message above a limit fails the call that it belongs to, with an error that names the limit. ``bodies``
bounds HTTP bodies while they are read, ``message_nodes`` the values in one MCP message, ``tool_results``
checks results against their output schema with ``schema``, which bounds the time and steps of a check.
``images`` and ``sizes`` are the limits of messages to and from agents, ``fleet_answer`` that of answers to
a fleet's clients, ``bounded_yaml`` the depth of a YAML file.
"""

from typing import Final

MAX_MESSAGE: Final = 16 * 1024 * 1024
"""Decoded bytes of one message: a body, a server-sent event, a line of a stdio server or of a model."""
MAX_STREAM: Final = 256 * 1024 * 1024
"""Decoded bytes of one streamed answer of a model."""
MAX_NODES: Final = 100_000
"""Objects and arrays in one message of an MCP server."""
MAX_PARTS: Final = 1_000
"""Content parts of one result."""
MAX_ENTRIES: Final = 10_000
"""Tools, prompts, resources or messages in one page of a list."""
MAX_GARBAGE: Final = 100
"""Invalid lines within ``GARBAGE_SECONDS`` after which a stdio server is ended: its tools may print some."""
GARBAGE_SECONDS: Final = 60.0
"""Seconds during which those lines are counted."""
CHECK_SECONDS: Final = 2.0
"""Seconds that checking one result against its tool's output schema may take."""
PATTERN_SECONDS: Final = 0.5
"""Seconds that one pattern of an output schema may take on one text."""


def in_mib(size: int) -> str:
    """A size for an error text: ``16 MiB``."""
    return f"{size // (1024 * 1024)} MiB"
