"""Parse a line that begins with a slash, run its command, and complete it."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Final

from pallas.model import Fault
from pallas.safe_text import one_line

MAX_CANDIDATES: Final = 50
_COMMAND: Final = re.compile(r"/([A-Za-z][\w-]*|\?)(?:[ \t]+(.*))?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Typed:
    """The parsed line: a ``command`` with its ``rest``, or an empty command and a message to send."""

    command: str
    rest: str


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The result of a command, in words; empty when the screen shows it anyway.

    ``ok`` is false when nothing was done: the typed line should stay, to be corrected.
    """

    text: str = ""
    ok: bool = True


@dataclass(frozen=True, slots=True)
class CommandCompletion:
    """How a line may continue: each of ``candidates`` replaces the text from ``start`` on."""

    start: int
    candidates: tuple[str, ...] = ()

    @property
    def common(self) -> str:
        """The common prefix of all candidates."""
        shortest = min(self.candidates, key=len, default="")
        for index, character in enumerate(shortest):
            if any(each[index].lower() != character.lower() for each in self.candidates):
                return shortest[:index]
        return shortest


@dataclass(frozen=True, slots=True)
class SlashCommand[Host]:
    """``run`` receives the host and the text after the name; ``values`` returns its completions.

    ``usage`` is its form without the slash, ``help`` one sentence. With ``lines`` its text may have several
    lines.
    """

    name: str
    usage: str
    help: str
    run: Callable[[Host, str], Awaitable[CommandOutcome]]
    values: Callable[[Host, str], Iterable[str]] = lambda host, rest: ()
    lines: bool = False


def read(text: str) -> Typed:
    """Parse a command, or the text to send.

    ``//`` sends a slash, and a path such as ``/etc/hosts`` is text.
    """
    if text.startswith("//"):
        return Typed("", text[1:])
    found = _COMMAND.match(text.strip()) if text.startswith("/") else None
    if found is None:
        return Typed("", text)
    return Typed(found[1].lower(), (found[2] or "").strip())


class Registry[Host]:
    """The commands by name, in the order of the help."""

    def __init__(self, commands: Sequence[SlashCommand[Host]]) -> None:
        self._own = {command.name: command for command in commands}
        self._more: Callable[[], Iterable[SlashCommand[Host]]] = lambda: ()

    def extend(self, more: Callable[[], Iterable[SlashCommand[Host]]]) -> None:
        """Add commands, which are asked for when commands are first used; names that are taken stay."""
        self._more = more
        self.__dict__.pop("commands", None)

    @cached_property
    def commands(self) -> Mapping[str, SlashCommand[Host]]:
        """All of them."""
        found = dict(self._own)
        for command in self._more():
            found.setdefault(command.name, command)
        return found

    async def run(self, host: Host, typed: Typed) -> CommandOutcome:
        """Run the command. Every failure becomes words; only cancellation is raised."""
        name = "help" if typed.command == "?" else typed.command
        command = self.commands.get(name)
        if command is None:
            return CommandOutcome(self._unknown(name), ok=False)
        if "\n" in typed.rest and not command.lines:
            return CommandOutcome(
                f"/{name} takes one line. To send this as a message, begin it with //.", ok=False
            )
        try:
            return await command.run(host, typed.rest)
        except Fault as fault:
            return CommandOutcome(fault.message, ok=False)

    def complete(self, host: Host, line: str) -> CommandCompletion:
        """Return how ``line``, with the cursor behind it, may continue; empty if it is no command."""
        if not line.startswith("/") or line.startswith("//") or "\n" in line:
            return CommandCompletion(len(line))
        name, space, rest = line[1:].partition(" ")
        if not space:
            fitting = [each for each in self.commands if each.startswith(name.lower())]
            return CommandCompletion(1, tuple(fitting))
        command = self.commands.get(name.lower())
        if command is None:
            return CommandCompletion(len(line))
        word = rest.rpartition(" ")[2]
        values = dict.fromkeys(command.values(host, rest))
        fitting = [each for each in values if each.lower().startswith(word.lower())]
        return CommandCompletion(len(line) - len(word), tuple(fitting[:MAX_CANDIDATES]))

    def hint(self, line: str) -> str:
        """Return the help of the command at the beginning of ``line``; empty if there is none."""
        command = self.commands.get(line[1:].partition(" ")[0].lower()) if line.startswith("/") else None
        return f"/{command.usage}: {command.help}" if command is not None else ""

    def help(self, name: str = "") -> str:
        """Return the list of commands, or the help of one of them."""
        if name:
            command = self.commands.get(name.removeprefix("/").lower())
            if command is None:
                return self._unknown(name.removeprefix("/"))
            return f"/{command.usage}\n{command.help}"
        width = max(len(command.usage) for command in self.commands.values()) + 3
        lines = [f"/{command.usage}".ljust(width) + command.help for command in self.commands.values()]
        return "\n".join([*lines, "//text".ljust(width) + "Sends /text: a message that begins with a slash."])

    def _unknown(self, name: str) -> str:
        near = [each for each in self.commands if len(name) > 1 and each.startswith(name)]
        near = near or get_close_matches(name, list(self.commands), 1, 0.5)
        hint = f"Did you mean /{near[0]}?" if near else "/help lists all of them."
        return f"There is no command /{one_line(name, 40)}. {hint} To send it as a message, begin it with //."
