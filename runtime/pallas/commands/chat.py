"""The commands of a conversation with an agent (SPEC AG-26)."""

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Protocol

from pallas.model import AgentDetail, ServerDetail, ToolDetail
from pallas.text import one_line

from .registry import Command, Outcome, Registry

MODEL_PARAMETERS: Final = frozenset(
    {"temperature", "top_p", "top_k", "max_tokens", "stop", "model", "seed", "response_format", "tool_choice"}
)
_FORMS: Final = ("md", "json")


@dataclass(frozen=True, slots=True)
class Parameter:
    """Something that ``/set`` shows and sets. ``values`` are some that may stand there."""

    name: str
    value: str
    help: str
    values: tuple[str, ...] = ()


class ChatHost(Protocol):
    """What the commands ask of whoever shows the conversation. What cannot be is raised as a Fault."""

    def parameters(self) -> Sequence[Parameter]:
        """What can be set, with what it is now. A credential is never among the values."""
        ...

    async def set(self, name: str, value: str) -> str:
        """Set one of them; returns what it is now, in words."""
        ...

    async def describe(self) -> AgentDetail:
        """The agent: its instruction and its tools."""
        ...

    async def clear(self) -> str:
        """Begin anew with the same agent: the next message is the first of another conversation."""
        ...

    async def export(self, form: str, path: str) -> str:
        """Write the transcript as ``md`` or ``json``, empty for as the path says; without one ask for it."""
        ...

    def facts(self) -> Sequence[tuple[str, str]]:
        """What is known of the conversation, as names and values."""
        ...

    async def quit(self) -> None:
        """Leave."""
        ...


async def _set(host: ChatHost, rest: str) -> Outcome:
    parameters = host.parameters()
    if not rest:
        width = max(len(each.name) for each in parameters) + 2
        return Outcome(
            "\n".join(f"{each.name.ljust(width)}{each.value}\n  {each.help}" for each in parameters)
        )
    name, _, value = rest.replace("=", " ", 1).partition(" ")
    name, value = name.lower(), value.strip()
    names = [each.name for each in parameters]
    if name in MODEL_PARAMETERS:
        return Outcome(
            f"{name} cannot be set from here: an agent's MCP server takes no parameters of its model. They "
            "stand where the agent is defined.",
            ok=False,
        )
    if name not in names:
        near = get_close_matches(name, names, 1, 0.5)
        hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names)}."
        return Outcome(f"There is nothing called {one_line(name, 40)} to set. {hint}", ok=False)
    if not value:
        parameter = next(each for each in parameters if each.name == name)
        some = f"\n  for example {', '.join(parameter.values[:8])}" if parameter.values else ""
        return Outcome(f"{name}  {parameter.value}\n  {parameter.help}{some}")
    return Outcome(await host.set(name, value))


def _set_values(host: ChatHost, rest: str) -> Iterable[str]:
    parameters = host.parameters()
    name, space, _ = rest.partition(" ")
    if not space:
        return [each.name for each in parameters]
    return next((each.values for each in parameters if each.name == name.lower()), ())


async def _system(host: ChatHost, rest: str) -> Outcome:
    if rest:
        return Outcome(
            "An agent's instruction stands where it is defined; over MCP nobody can change it. /system alone "
            "shows it.",
            ok=False,
        )
    detail = await host.describe()
    where = f"\n\n(defined in {detail.defined})" if detail.defined else ""
    return Outcome((detail.instruction.strip() or f"{detail.name} does not tell its instruction.") + where)


async def _tools(host: ChatHost, rest: str) -> Outcome:
    return Outcome(tools_text(await host.describe(), rest))


async def _clear(host: ChatHost, rest: str) -> Outcome:
    return Outcome(await host.clear())


async def _save(host: ChatHost, rest: str) -> Outcome:
    return Outcome(await host.export("", _path(rest)))


async def _export(host: ChatHost, rest: str) -> Outcome:
    form, _, path = rest.partition(" ")
    if form.lower() not in _FORMS:
        form, path = "", rest
    return Outcome(await host.export(form.lower(), _path(path)))


async def _thread(host: ChatHost, rest: str) -> Outcome:
    facts = [(name, value) for name, value in host.facts() if value]
    width = max(len(name) for name, _ in facts) + 2
    return Outcome("\n".join(f"{name.ljust(width)}{value}" for name, value in facts))


async def _quit(host: ChatHost, rest: str) -> Outcome:
    await host.quit()
    return Outcome()


async def _help(host: ChatHost, rest: str) -> Outcome:
    return Outcome(COMMANDS.help(rest))


def _path(text: str) -> str:
    """A path as a person writes it, with quotes or without."""
    text = text.strip()
    try:
        parts = shlex.split(text)
    except ValueError:
        return text
    return parts[0] if len(parts) == 1 and text[:1] in "'\"" else text


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
    return tool.name.lower(), f"{server.server}/{tool.name}".lower()


def _pretty(schema: str) -> str:
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except ValueError:
        return schema


COMMANDS: Final[Registry[ChatHost]] = Registry(
    [
        Command(
            "help",
            "help [command]",
            "Lists the commands.",
            _help,
            lambda host, rest: tuple(COMMANDS.commands),
        ),
        Command(
            "set", "set [name [value]]", "Shows or sets how this conversation is held.", _set, _set_values
        ),
        Command("system", "system", "Shows the agent's instruction.", _system),
        Command("tools", "tools [name]", "Lists the agent's tools; one of them with its schema.", _tools),
        Command("clear", "clear", "Begins a new conversation with the same agent.", _clear),
        Command(
            "thread", "thread", "Tells the conversation's handle, protocol, caller and figures.", _thread
        ),
        Command(
            "save", "save [path]", "Writes the transcript to a file: Markdown, or JSON for *.json.", _save
        ),
        Command(
            "export",
            "export [md|json] [path]",
            "Writes the transcript in that form.",
            _export,
            lambda host, rest: _FORMS if " " not in rest else (),
        ),
        Command("quit", "quit", "Leaves; asks first while something runs.", _quit),
    ]
)
