"""An agent's tools as text."""

import json

from pallas.model import AgentDetail, ServerDetail, ToolDetail
from pallas.model.safe_text import one_line


def tools_text(detail: AgentDetail, wanted: str = "") -> str:
    """The tools of an agent's servers, one line each; with ``wanted`` those of that name, in full."""
    lines: list[str] = []
    for server in detail.servers:
        tools = [tool for tool in server.tools if not wanted or wanted.lower() in _names(server, tool)]
        if not tools and wanted:
            continue
        lines.append(server.server or f"{detail.name} itself")
        if server.problem:
            lines.append(f"  {server.problem}")
        for tool in tools:
            about = one_line(tool.description or tool.title, 160)
            lines.append(f"  {tool.name}" + (f": {about}" if about else ""))
            if wanted:
                lines += ["    " + line for line in _pretty(tool.input_schema).splitlines()]
    if lines:
        return "\n".join(lines)
    return (
        f"{detail.name} has no tool called {one_line(wanted, 60)}."
        if wanted
        else f"{detail.name} has no tools."
    )


def _names(server: ServerDetail, tool: ToolDetail) -> tuple[str, ...]:
    return tool.name.lower(), f"{server.server}/{tool.name}".lower(), f"{server.server}__{tool.name}".lower()


def _pretty(schema: str) -> str:
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except ValueError:
        return schema
