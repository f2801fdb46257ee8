"""An agent's Markdown, shown as untrusted text."""

import re
from typing import Final

from markdown_it import MarkdownIt
from textual import on
from textual.content import Content
from textual.highlight import highlight
from textual.message import Message
from textual.widgets import Markdown

PLAIN_ABOVE: Final = 60_000
"""Characters above which an answer is shown as its source."""
WEIGHT: Final = 400
"""About how many widgets the Markdown of one answer may become: more would block the keys."""
SHOWN: Final = 200_000
"""Characters of a message that are shown; a copy has all."""

_FENCE: Final = re.compile(r"\s*(```|~~~)")
_ITEM: Final = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s")
_ITEM_WEIGHT: Final = 4


def weight(text: str) -> int:
    """Return about how many widgets the Markdown in ``text`` becomes."""
    widgets, fence = 0, ""
    for line in text.splitlines():
        if found := _FENCE.match(line):
            widgets += not fence
            fence = "" if fence == found[1] else fence or found[1]
        elif fence or not line.strip():
            continue
        elif _ITEM.match(line):
            widgets += _ITEM_WEIGHT
        else:
            widgets += max(1, line.count("|") - 1)
    return widgets


def is_light(text: str) -> bool:
    """Return whether ``text`` is light enough to be drawn as Markdown while the user types."""
    return len(text) <= PLAIN_ABOVE and weight(text) <= WEIGHT


def source_of(text: str) -> Content:
    """Return Markdown that is too heavy to be drawn as coloured source. Takes time: call in a thread."""
    text = shown(text)
    return highlight(text, language="markdown") if len(text) <= PLAIN_ABOVE else Content(text)


class Splitter:
    """Splits growing text into complete blocks and the ``rest``, which is still being written.

    A block is complete when an empty line and the beginning of another block follow, outside of code.
    """

    def __init__(self) -> None:
        self.rest = ""
        self._at = 0  # how much of the rest was already looked at
        self._fence = ""
        self._blank = False

    def feed(self, more: str) -> list[str]:
        """Take in new text; return the blocks that it completed."""
        self.rest += more
        done: list[str] = []
        while (end := self.rest.find("\n", self._at) + 1) > 0:
            line = self.rest[self._at : end]
            if not self._fence and self._blank and not line[0].isspace():
                done.append(self.rest[: self._at])
                self.rest, end, self._at = self.rest[self._at :], end - self._at, 0
            if found := _FENCE.match(line):
                self._fence = "" if self._fence == found[1] else self._fence or found[1]
            self._blank = not line.strip()
            self._at = end
        return done


def shown(text: str) -> str:
    """Return the part of ``text`` that is shown, with a note about the rest."""
    if len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]}…\n\n({len(text) - SHOWN:,} more characters: y copies all)"


class AnswerMarkdown(Markdown):
    """Markdown from an agent: tags are text, and a link is only passed on to the user, never opened."""

    class LinkTaken(Message):
        """A link was clicked; ``href`` is its target."""

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
