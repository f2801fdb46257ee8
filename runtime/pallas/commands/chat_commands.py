"""The commands of a conversation with an agent (AG-26)."""

import json
import shlex
from collections.abc import Iterable
from time import localtime, strftime
from typing import Final

from pallas.model import AgentDetail, ServerDetail, ThreadRecord, ToolDetail
from pallas.safe_text import one_line

from . import parameter_commands
from .command_host import Attaching, ChatHost, Repeating, Threaded
from .command_registry import CommandOutcome, Registry, SlashCommand


def tools_text(detail: AgentDetail, name: str = "") -> str:
    """Return the tools of an agent's servers, one per line; with ``name`` those of that name, in full."""
    lines: list[str] = []
    for server in detail.servers:
        tools = [tool for tool in server.tools if not name or name.lower() in _names(server, tool)]
        if not tools and name:
            continue
        lines.append(server.server or f"{detail.name} itself")
        if server.problem:
            lines.append(f"  {server.problem}")
        for tool in tools:
            about = one_line(tool.description or tool.title, 160)
            lines.append(f"  {tool.name}" + (f": {about}" if about else ""))
            if name:
                lines += ["    " + line for line in _pretty(tool.input_schema).splitlines()]
    if lines:
        return "\n".join(lines)
    return (
        f"{detail.name} has no tool called {one_line(name, 60)}." if name else f"{detail.name} has no tools."
    )


def _names(server: ServerDetail, tool: ToolDetail) -> tuple[str, ...]:
    return tool.name.lower(), f"{server.server}/{tool.name}".lower(), f"{server.server}__{tool.name}".lower()


def _pretty(schema: str) -> str:
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except ValueError:
        return schema


_FORMS: Final = ("md", "json")
_NO_THREADS: Final = "Earlier conversations are not known here."


async def _tools(host: ChatHost, rest: str) -> CommandOutcome:
    return CommandOutcome(tools_text(await host.describe(), rest))


async def _clear(host: ChatHost, rest: str) -> CommandOutcome:
    text = await host.clear()
    return CommandOutcome("\n".join(filter(None, (text, parameter_commands.forget_instruction(host)))))


async def _export(host: ChatHost, rest: str) -> CommandOutcome:
    form, _, path = rest.partition(" ")
    if form.lower() not in _FORMS:
        form, path = "", rest
    return CommandOutcome(await host.export(form.lower(), _path(path)))


async def _thread(host: ChatHost, rest: str) -> CommandOutcome:
    facts = [(name, value) for name, value in host.facts() if value]
    width = max((len(name) for name, _ in facts), default=0) + 2
    return CommandOutcome("\n".join(f"{name.ljust(width)}{value}" for name, value in facts))


async def _threads(host: ChatHost, rest: str) -> CommandOutcome:
    if not isinstance(host, Threaded):
        return CommandOutcome(_NO_THREADS, ok=False)
    found = await host.threads()
    if not found:
        return CommandOutcome("There is no earlier conversation with this agent.")
    lines = [f"{number:>3}  {_line(each)}" for number, each in enumerate(found, 1)]
    return CommandOutcome("\n".join([*lines, "/resume with a number or an id continues one."]))


async def _resume(host: ChatHost, rest: str) -> CommandOutcome:
    if not isinstance(host, Threaded):
        return CommandOutcome(_NO_THREADS, ok=False)
    if not rest:
        return CommandOutcome("Which one? /threads lists them.", ok=False)
    if not (rest.isdecimal() and len(rest) < 4):
        fitting = [each for each in host.known_threads() if each.startswith(rest)]
        return await _go_on(host, fitting[0] if len(fitting) == 1 else rest)
    known = host.known_threads() or [each.id for each in await host.threads()]
    if not 0 < int(rest) <= len(known):
        return CommandOutcome(f"There is no conversation number {rest}; /threads lists them.", ok=False)
    return await _go_on(host, known[int(rest) - 1])


async def _go_on(host: Threaded, thread: str) -> CommandOutcome:
    text = await host.resume(thread)
    return CommandOutcome("\n".join(filter(None, (text, parameter_commands.forget_instruction(host)))))


def _resumable(host: ChatHost, rest: str) -> Iterable[str]:
    return host.known_threads() if isinstance(host, Threaded) else ()


async def _image(host: ChatHost, rest: str) -> CommandOutcome:
    if not isinstance(host, Attaching):
        return CommandOutcome("Pictures cannot be sent from here.", ok=False)
    return CommandOutcome(await host.attach(_path(rest)))


async def _retry(host: ChatHost, rest: str) -> CommandOutcome:
    if not isinstance(host, Repeating):
        return CommandOutcome("Nothing can be asked again from here.", ok=False)
    return CommandOutcome(await host.retry())


async def _quit(host: ChatHost, rest: str) -> CommandOutcome:
    await host.quit()
    return CommandOutcome()


async def _help(host: ChatHost, rest: str) -> CommandOutcome:
    return CommandOutcome(COMMANDS.help(rest))


def _line(thread: ThreadRecord) -> str:
    at = thread.last_turn_at or thread.updated_at or thread.created_at
    when = strftime("%Y-%m-%d %H:%M", localtime(at)) if at else ""
    rows = f"{thread.messages} message{'' if thread.messages == 1 else 's'}"
    return "  ".join(part for part in (thread.id, when, rows, one_line(thread.title, 60)) if part)


def _path(text: str) -> str:
    """Return a path as a person types it, with or without quotes."""
    text = text.strip()
    try:
        parts = shlex.split(text)
    except ValueError:
        return text
    return parts[0] if len(parts) == 1 and text[:1] in "'\"" else text


COMMANDS: Final[Registry[ChatHost]] = Registry(
    [
        SlashCommand(
            "help",
            "help [command]",
            "Lists the commands.",
            _help,
            lambda host, rest: tuple(COMMANDS.commands),
        ),
        SlashCommand(
            "set",
            "set [name [value]]",
            "Shows or sets options of this conversation and the model's parameters; null clears one.",
            parameter_commands.set_,
            parameter_commands.set_values,
        ),
        SlashCommand(
            "unset",
            "unset name",
            "Resets a parameter to the agent's own value.",
            parameter_commands.unset,
            parameter_commands.unset_values,
        ),
        SlashCommand(
            "system",
            "system [text]",
            "Replaces the agent's instruction in this conversation; without text restores and shows it.",
            parameter_commands.system,
            lines=True,
        ),
        SlashCommand(
            "append",
            "append [text]",
            "Adds to the instruction in this conversation; without text removes what was added.",
            parameter_commands.append,
            lines=True,
        ),
        SlashCommand(
            "tools", "tools [name]", "Lists the agent's tools; one of them with its schema.", _tools
        ),
        SlashCommand("clear", "clear", "Begins a new conversation with the same agent.", _clear),
        SlashCommand(
            "save",
            "save",
            "Saves the values of /set as the agent's defaults; the instruction is not saved.",
            parameter_commands.save,
        ),
        SlashCommand(
            "thread", "thread", "Shows the conversation's handle, protocol, caller and figures.", _thread
        ),
        SlashCommand("threads", "threads", "Lists earlier conversations with this agent.", _threads),
        SlashCommand(
            "resume",
            "resume id",
            "Continues an earlier conversation, by its number or id.",
            _resume,
            _resumable,
        ),
        SlashCommand("image", "image [path]", "Sends a picture with the next message.", _image),
        SlashCommand("retry", "retry", "Asks the last question again.", _retry),
        SlashCommand(
            "export",
            "export [md|json] [path]",
            "Writes the transcript to a file: Markdown, or JSON for *.json.",
            _export,
            lambda host, rest: _FORMS if " " not in rest else (),
        ),
        SlashCommand("quit", "quit", "Leaves; asks first while something runs.", _quit),
        SlashCommand("exit", "exit", "The same.", _quit),
    ]
)
