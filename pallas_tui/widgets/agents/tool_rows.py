"""What the list of tools and resources of an agent has, each server's below the server."""

from collections.abc import Hashable
from dataclasses import dataclass

from pallas.model import AgentDetail, ResourceDetail, ServerDetail, ToolDetail

from .lock_lines import FOUND, HELD, change_of

MARKS = {
    "added": ("+", "$text-success"),
    "changed": ("~", "$text-warning"),
    "removed": ("-", "$text-error"),
    "differs from lock": HELD,
    "suspicious": FOUND,
}


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A server (no ``name``), a tool, a resource, or a tool that is gone; ``mark`` is a key of ``MARKS``."""

    server: ServerDetail
    name: str = ""
    tool: ToolDetail | None = None
    mark: str = ""
    resource: ResourceDetail | None = None

    @property
    def key(self) -> Hashable:
        """By what it is known again."""
        if self.resource is not None:
            return self.server.server, "", self.resource.uri
        return self.server.server, self.name

    @property
    def words(self) -> str:
        """What a filter looks in."""
        tool, resource = self.tool, self.resource
        words = [self.server.server, self.name]
        words += [tool.title, tool.description] if tool is not None else []
        words += [resource.uri, resource.title, resource.description] if resource is not None else []
        return " ".join(words).lower()


def tool_rows(detail: AgentDetail) -> tuple[ToolRow, ...]:
    """Every server, each followed by its tools, those that are gone, and its resources."""
    found: list[ToolRow] = []
    for server in detail.servers:
        found.append(ToolRow(server))
        found += [ToolRow(server, tool.name, tool, _mark(server, tool.name)) for tool in server.tools]
        found += [ToolRow(server, name, None, "removed") for name in server.changes.removed]
        found += [ToolRow(server, each.name or each.uri, resource=each) for each in server.resources]
    return tuple(found)


def _mark(server: ServerDetail, tool: str) -> str:
    """What differs from the lock comes before what was seen last."""
    if change_of(server.lock, tool) is not None:
        return "differs from lock"
    if server.lock is not None and any(each.name == tool for each in server.lock.findings):
        return "suspicious"
    if tool in server.changes.added:
        return "added"
    return "changed" if tool in server.changes.changed else ""
