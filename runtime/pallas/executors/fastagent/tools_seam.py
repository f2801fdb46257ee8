"""The tools that a warm instance found, read where fast-agent keeps them: nobody is asked again.

``tests/contract/test_tools_seam.py`` fails when one of these moves.
"""

from collections.abc import Container, Iterable
from typing import Any

from pallas.model import ServerDetail
from pallas.toolbox.listing import MAX_TOOLS, details_of


def tools_of(agents: Iterable[Any], servers: Iterable[str], away: Container[str]) -> tuple[ServerDetail, ...]:
    """The tools of each of ``servers`` as these agents found them, and of their own code under no name.

    Servers that are ``away`` have a problem instead. Takes a while where there are many tools.
    """
    found: dict[str, dict[str, Any]] = {name: {} for name in ("", *servers)}
    for agent in agents:
        aggregator = getattr(agent, "_aggregator", None)
        for each in list(getattr(aggregator, "_namespaced_tool_map", {}).values()):
            found.setdefault(each.server_name, {})[each.tool.name] = each.tool
        for tool in list(getattr(agent, "_tool_schemas", ())):
            found[""][tool.name] = tool
    return tuple(
        ServerDetail(name, problem="it could not be reached")
        if name in away and not tools
        else ServerDetail(name, details_of(list(tools.values())[:MAX_TOOLS]))
        for name, tools in found.items()
    )
