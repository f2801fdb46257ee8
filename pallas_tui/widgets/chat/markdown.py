"""An agent's Markdown, shown without giving it any power."""

import re
from typing import Final

from markdown_it import MarkdownIt
from textual import on
from textual.message import Message
from textual.widgets import Markdown

PLAIN_ABOVE: Final = 60_000
"""Characters above which an answer is shown as plain text."""
BLOCKS_ABOVE: Final = 600
"""Lines outside of code above which it is: each may become widgets of its own."""
SHOWN: Final = 200_000
"""Characters of a message that are shown; copying takes all."""

_FENCE: Final = re.compile(r"^\s*(```|~~~)")


def is_light(text: str) -> bool:
    """Whether drawing ``text`` as Markdown costs little enough to do it while somebody types."""
    if len(text) > PLAIN_ABOVE:
        return False
    lines = 0
    fence = ""
    for line in text.splitlines():
        if found := _FENCE.match(line):
            fence = "" if fence == found[1] else fence or found[1]
        elif not fence and line.strip():
            lines += 1
    return lines <= BLOCKS_ABOVE


def shown(text: str) -> str:
    """As much of ``text`` as is shown, with a note of the rest."""
    if len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]}…\n\n({len(text) - SHOWN:,} more characters: y copies all)"


class AnswerMarkdown(Markdown):
    """Markdown from an agent: tags are text, and a link is never opened, only handed to the person."""

    class LinkTaken(Message):
        """A link was clicked; ``href`` is where it leads."""

        def __init__(self, href: str) -> None:
            super().__init__()
            self.href = href

    def __init__(self, text: str = "") -> None:
        super().__init__(text, open_links=False, parser_factory=_parser, classes="chat-markdown")

    @on(Markdown.LinkClicked)
    def _on_link(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        self.post_message(self.LinkTaken(event.href))


def _parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"html": False})
