"""An agent's Markdown, shown without giving it any power."""

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
"""Widgets, roughly, that the Markdown of one answer may become: drawing more of them stops the keys."""
SHOWN: Final = 200_000
"""Characters of a message that are shown; copying takes all."""

_FENCE: Final = re.compile(r"\s*(```|~~~)")
_ITEM: Final = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s")
_ITEM_WEIGHT: Final = 4


def weight(text: str) -> int:
    """About how many widgets the Markdown in ``text`` becomes."""
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
    """Whether drawing ``text`` as Markdown costs little enough to do it while the user types."""
    return len(text) <= PLAIN_ABOVE and weight(text) <= WEIGHT


def source_of(text: str) -> Content:
    """Markdown too heavy to be drawn, as its source in colours. Takes time: call in a thread."""
    text = shown(text)
    return highlight(text, language="markdown") if len(text) <= PLAIN_ABOVE else Content(text)


class Splitter:
    """Parts text that grows into blocks that are complete and the ``rest``, which is still being written.

    Complete means followed by an empty line and the beginning of something else, outside of code.
    """

    def __init__(self) -> None:
        self.rest = ""
        self._at = 0  # what stands before that in the rest was looked at
        self._fence = ""
        self._blank = False

    def feed(self, more: str) -> list[str]:
        """Take what was written since; returns the blocks that it completed."""
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
