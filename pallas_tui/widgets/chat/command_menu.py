"""How a slash command may go on: a menu over the transcript, above the prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from pallas.commands import COMMANDS, ChatHost
from pallas.commands.command_registry import CommandCompletion

from ...text import Glyphs, fit
from ..tones import DIM
from .prompt_area import PromptArea

ROWS: Final = 8
"""Candidates that are shown at once."""
_WIDEST: Final = 40


def is_command(line: str) -> bool:
    """Return whether the line begins like a command."""
    return line.startswith("/") and not line.startswith("//") and "\n" not in line


@dataclass(frozen=True, slots=True)
class Candidates:
    """Each of ``words`` may stand behind ``head``; ``index`` is that of the chosen one, -1 for none."""

    head: str = ""
    words: tuple[str, ...] = ()
    index: int = -1

    @property
    def line(self) -> str:
        """The line with the chosen word."""
        return self.head + self.words[self.index]


class CommandCompleter:
    """Completes commands for ``host``; remembers the candidates through which the user goes."""

    def __init__(self, host: ChatHost) -> None:
        self._host = host
        self._chosen = Candidates()

    def candidates(self, line: str) -> Candidates:
        """Return how a command in ``line`` may go on; those before the choice while one is chosen."""
        if self._chosen.words and line == self._chosen.line:
            return self._chosen
        self._chosen = Candidates()
        if not is_command(line):
            return self._chosen
        found = COMMANDS.complete(self._host, line)
        return Candidates(line[: found.start], found.candidates)

    def complete(self, line: str, by: int = 0) -> str | None:
        """Return ``line`` completed as far as it is unambiguous, else with the next candidate.

        ``by`` 1 or -1 takes the next or previous candidate at once. None if there is nothing to complete.
        """
        if not is_command(line):
            return None
        found = self.candidates(line)
        if not by and found.index < 0:
            common = CommandCompletion(0, found.words).common
            longer = found.head + common if common else line
            longer += " " if len(found.words) == 1 else ""
            if len(longer) > len(line) or len(found.words) < 2:
                return max(line, longer, key=len)
        if len(found.words) < 2:
            return None
        index = (max(found.index, -1 if by >= 0 else 0) + (by or 1)) % len(found.words)
        self._chosen = Candidates(found.head, found.words, index)
        return self._chosen.line

    def about(self, found: Candidates) -> list[tuple[str, str]]:
        """Return the candidates, each with what it is for where that is known."""
        if found.head == "/":
            return [
                (f"/{COMMANDS.commands[word].usage}", COMMANDS.commands[word].help) for word in found.words
            ]
        known = {each.name: each.help for each in self._host.parameters()}
        return [(word, known.get(word, "") if found.head == "/set " else "") for word in found.words]

    def hint(self, line: str) -> str:
        """Return what the command in ``line`` does, or how to choose one; empty if it is no command."""
        found = self.candidates(line)
        if len(found.words) > 1:
            return "tab completes, and takes the next one when pressed again"
        return COMMANDS.hint(line) if is_command(line) else ""


class CommandMenu(Static):
    """The candidates, some around the chosen one, while there are several."""

    def __init__(self, completer: CommandCompleter, glyphs: Glyphs) -> None:
        super().__init__(markup=False, classes="chat-menu")
        self._completer, self._glyphs = completer, glyphs
        self.display = False

    def follow(self, line: str) -> str:
        """Show how a command in ``line`` may go on while a prompt has the focus; return a hint on it."""
        found = self._completer.candidates(line)
        self.display = len(found.words) > 1 and isinstance(self.app.focused, PromptArea)
        if self.display:
            self._show(self._completer.about(found), found.index)
        return self._completer.hint(line)

    def _show(self, rows: Sequence[tuple[str, str]], index: int) -> None:
        first = max(0, min(index - ROWS // 2, len(rows) - ROWS))
        shown = rows[first : first + ROWS]
        width = min(_WIDEST, max(cell_len(name) for name, _ in rows))
        lines = []
        for at, (name, about) in enumerate(shown, first):
            mark = self._glyphs.closed if at == index else " "
            style = "bold reverse" if at == index else "bold"
            lines.append(
                Content.assemble(f"{mark} ", (fit(name, width, self._glyphs), style), (f"  {about}", DIM))
            )
        if len(rows) > len(shown):
            lines.append(Content.styled(f"  {first + 1} to {first + len(shown)} of {len(rows)}", DIM))
        self.update(Content("\n").join(lines))
        self.styles.offset = (0, -len(lines))
