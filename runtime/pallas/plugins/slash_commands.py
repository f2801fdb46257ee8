"""Slash commands of plugins, for every conversation of this process."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace

from pallas.commands import ChatHost, CommandOutcome, SlashCommand
from pallas.model import Fault
from pallas.safe_text import one_line

from .plugin_set import installed_plugins


def plugin_commands() -> Iterator[SlashCommand[ChatHost]]:
    """Yield the commands of installed plugins. One that raises says so in words, as any other command."""
    plugins = installed_plugins()
    for plugin, commands in plugins.results("chat_commands", list):
        for command in commands:
            if isinstance(command, SlashCommand):
                run, values = _guarded(plugin, command.run), _guarded_values(command.values)
                yield replace(command, run=run, values=values)
            else:
                plugins.refuse(plugin, f"chat_commands returned {type(command).__name__}; use SlashCommand")


def _guarded(
    plugin: str, run: Callable[[ChatHost, str], Awaitable[CommandOutcome]]
) -> Callable[[ChatHost, str], Awaitable[CommandOutcome]]:
    async def guarded(host: ChatHost, rest: str) -> CommandOutcome:
        try:
            return await run(host, rest)
        except Fault:
            raise
        except Exception as error:
            text = one_line(f"plugin {plugin}: {type(error).__name__}: {error}", 300)
            return CommandOutcome(text, ok=False)

    return guarded


def _guarded_values(
    values: Callable[[ChatHost, str], Iterable[str]],
) -> Callable[[ChatHost, str], Iterable[str]]:
    def guarded(host: ChatHost, rest: str) -> Iterable[str]:
        try:
            return tuple(values(host, rest))
        except Exception:  # there is nothing to complete then
            return ()

    return guarded
