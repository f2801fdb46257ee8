"""What an MCP server offered to an agent, as runs and recordings keep it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerOffer:
    """What a server said of itself, and what the agent could use of it. Secrets are masked.

    Tools are as in MCP, in the order of the server. What ``tools.lock`` held back is not in it.
    """

    server: str  # its name under ``mcp.servers``
    name: str = ""  # the name that it gives itself
    version: str = ""  # its own
    protocol: str = ""  # the version of MCP in which it was asked
    capabilities: Mapping[str, Any] = field(default_factory=dict, hash=False)
    instructions: str = ""
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    prompts: tuple[str, ...] = ()  # their names
    missing: tuple[str, ...] = ()  # a line for each part that was too large to be kept

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of its tools."""
        return tuple(str(each.get("name", "")) for each in self.tools)


@dataclass(frozen=True, slots=True)
class StoredOffer:
    """A ``ServerOffer`` as JSON text, with the SHA-256 of that in hex: equal offers are stored once."""

    digest: str
    body: str = field(repr=False)
