"""MCP servers without which an agent does not answer: ``required: true`` in its entry, or on a program."""

from collections.abc import Mapping

from .agents import Draft
from .downstreams import endpoint
from .models import DownstreamConfig, ServerConfig
from .notes import Notes, allowed, did_you_mean


def check_required(
    agents: Mapping[str, Draft], downstreams: Mapping[str, DownstreamConfig], notes: Notes
) -> None:
    """Every server that an agent requires is one of ``mcp.servers``."""
    known = tuple(downstreams)
    for agent in agents.values():
        for name, where in agent.required:
            if name not in downstreams:
                notes.error(
                    where,
                    f"{agent.path}.servers.{name}",
                    f"there is no server {name} under mcp.servers",
                    allowed(known) if known else "add it to the fast-agent configuration",
                    did_you_mean(name, known),
                )


def required_of(
    agent: Draft, programs: Mapping[str, ServerConfig], downstreams: Mapping[str, DownstreamConfig]
) -> tuple[str, ...]:
    """The servers that the agent requires, by their names under ``mcp.servers``, each once.

    A program that is required is one for every agent that calls it, by its name or at its URL.
    """
    needed = [program for program in programs.values() if program.required]
    urls = {endpoint(program.url) for program in needed}
    names = {program.name for program in needed}
    found = [name for name, _ in agent.required]
    found += [each.name for each in downstreams.values() if each.name in names or each.url in urls]
    return tuple(dict.fromkeys(found))
