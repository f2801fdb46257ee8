"""The tools and instructions of MCP servers as the models of a recording saw them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pallas.model import Recording, StepDetail
from pallas.model.step_view import view_of

from .first_difference import loaded

_INSTRUCTIONS: Final = re.compile(
    r'<fastagent:mcp-server name="([^"\n]+)">\n<tools>[^\n]*</tools>\n'
    r"<instructions>\n(.*?)\n</instructions>\n</fastagent:mcp-server>",
    re.DOTALL,
)
"""How fast-agent puts the instructions of a server into those of an agent."""
_MARK: Final = "fastagent:mcp-server"
_SCHEMAS: Final = ("parameters", "input_schema", "parametersJsonSchema")


@dataclass(frozen=True, slots=True)
class RecordedTool:
    """A tool of a server; its name is the server's own, ``schema`` that of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


class RecordedTools:
    """What a recording says of MCP servers. Requests repeat it: it is read once from equal texts."""

    def __init__(self, recording: Recording) -> None:
        seen: dict[str, None] = {}
        self._lists: list[list[RecordedTool]] = []
        self._instructions: dict[str, str] = {}
        for detail in (each for run in recording.runs for each in run.steps if each.step.kind == "model"):
            request = loaded(detail.request)
            entries = request.get("tools") if isinstance(request, dict) else None
            if (text := json.dumps(entries)) not in seen:
                seen[text] = None
                self._lists.append(list(tools_in(entries)))
            self._read_instructions(detail)
        # Agents may see some of the tools only: the order of the longest list is the server's.
        self._lists.sort(key=len, reverse=True)

    @property
    def all(self) -> tuple[RecordedTool, ...]:
        """All tools, with the names that models know."""
        return tuple(tool for tools in self._lists for tool in tools)

    def of(self, server: str) -> tuple[RecordedTool, ...]:
        """The tools of a server, in its order."""
        prefix, found = f"{server}__", dict[str, RecordedTool]()
        for tool in (each for tools in self._lists for each in tools if each.name.startswith(prefix)):
            name = tool.name.removeprefix(prefix)
            found.setdefault(name, replace(tool, name=name))
        return tuple(found.values())

    def instructions(self, server: str) -> str:
        """The instructions of a server, where those of an agent quote them; else empty."""
        return self._instructions.get(server, "")

    def _read_instructions(self, detail: StepDetail) -> None:
        if _MARK in detail.request:
            for server, text in _INSTRUCTIONS.findall(view_of(detail.request, "").instructions):
                self._instructions.setdefault(server, text)


def tools_in(entries: Any) -> Iterator[RecordedTool]:
    """The tools in the list of any provider, with the names that models know."""
    for entry in _dicts(entries):
        declared = _dicts(entry.get("functionDeclarations"))
        for found in declared or [entry.get("function", entry)]:
            if isinstance(name := found.get("name"), str):
                schema: Any = next((found[key] for key in _SCHEMAS if isinstance(found.get(key), dict)), {})
                schema = _plain(schema) if declared else schema
                yield RecordedTool(name, str(found.get("description") or ""), schema)


def _plain(schema: Any) -> Any:
    """A schema of Google's with the names of types as JSON Schema has them."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: each.lower() if key == "type" and isinstance(each, str) else _plain(each)
        for key, each in schema.items()
    }


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
