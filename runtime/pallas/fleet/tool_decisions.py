"""How the calls of an agent's tools are decided, in words for people."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pallas.executors import ExecutorInfo
from pallas.model import ServerDetail
from pallas.model.tool_rules import ToolRules

_SEPARATOR = "__"
"""Between a server and its tool in the names of rules."""


def with_rules(server: ServerDetail, rules: ToolRules) -> ServerDetail:
    """The server with the rule of each of its tools. Without a name the tools are functions of the agent."""
    prefix = f"{server.server}{_SEPARATOR}" if server.server else ""
    return replace(
        server,
        tools=tuple(
            replace(each, rule=rules.words(f"{prefix}{each.name}", server=server.server, hints=each.hints))
            for each in server.tools
        ),
    )


def decisions(rules: ToolRules, info: ExecutorInfo | None, peers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each tool that an agent has, by its name in rules, with how calls of it are decided.

    Nothing if there are no rules.
    """
    if rules.are_empty:
        return
    for server in info.tools if info is not None else ():
        prefix = f"{server.server}{_SEPARATOR}" if server.server else ""
        for tool in with_rules(server, rules).tools:
            yield f"{prefix}{tool.name}", tool.rule
    for peer in peers:
        yield f"agent:{peer}", rules.words(f"agent:{peer}")
