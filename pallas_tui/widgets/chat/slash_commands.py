"""Slash commands as they are typed into a prompt: completion, a hint, and what comes of them."""

from collections.abc import Callable
from typing import Protocol

from pallas.commands import COMMANDS, ChatHost, CommandOutcome, Typed

from ...chat.prompt_history import PromptHistory


class Line(Protocol):
    """Where a command is typed."""

    text: str

    def load_text(self, text: str) -> None:
        """Write this there instead."""
        ...


class Slash:
    """Runs commands for ``host``; ``tell`` gets what came of each.

    A command stays where it was typed until it is done, and then goes into the history. One that is about a
    credential goes at once, and into no history.
    """

    def __init__(
        self, host: ChatHost, history: PromptHistory, tell: Callable[[CommandOutcome], None]
    ) -> None:
        self._host, self._history, self._tell = host, history, tell

    async def run(self, typed: Typed, line: Line | None = None) -> None:
        """Do it, and take it away from ``line`` if it was typed there."""
        text = line.text if line is not None else ""
        secret = typed.command == "set" and typed.rest.lower().startswith("bearer")
        if secret and line is not None:
            line.load_text("")
        outcome = await COMMANDS.run(self._host, typed)
        if outcome.ok and line is not None and line.text == text:
            line.load_text("")
        if outcome.ok and not secret:
            self._history.add(text)
        self._tell(outcome)

    def complete(self, line: str) -> str | None:
        """``line`` as far as it can only go on; None for what is no command."""
        if not is_command(line):
            return None
        found = COMMANDS.complete(self._host, line)
        longer = line[: found.start] + found.common if found.common else line
        if len(found.candidates) == 1:
            longer += " "
        return longer if len(longer) > len(line) else line

    def hint(self, line: str) -> str:
        """How a command in ``line`` may go on, or what it is for; empty for what is no command."""
        if not is_command(line):
            return ""
        candidates = COMMANDS.complete(self._host, line).candidates
        if len(candidates) > 1 or (candidates and " " not in line):
            return "tab: " + " ".join(candidates)
        return COMMANDS.hint(line)


def is_command(line: str) -> bool:
    """Whether it begins as one."""
    return line.startswith("/") and not line.startswith("//") and "\n" not in line
