"""An agent's Markdown, shown as untrusted text."""

from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Final, cast

from markdown_it import MarkdownIt
from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.css.types import TextAlign
from textual.highlight import highlight
from textual.message import Message
from textual.widgets import Markdown
from textual.widgets._markdown import MarkdownTable, MarkdownTableContent, MarkdownTH
from textual.widgets.markdown import MarkdownBlock

from pallas.safe_text import sanitize

from ...chat.answer_weight import FENCE, PLAIN_ABOVE

SHOWN: Final = 200_000
"""Characters of a message that are shown; a copy has all."""

# The parser leaves out what is nested deeper; an answer that is, is shown as its source.
_MAX_NESTING: Final = 100


def source_of(text: str) -> Content:
    """Return Markdown that is too heavy to be drawn as coloured source. Takes time: call in a thread."""
    text = sanitize(shown(text))
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
            if found := FENCE.match(line):
                self._fence = "" if self._fence == found[1] else self._fence or found[1]
            self._blank = not line.strip()
            self._at = end
        return done

    def take(self, length: int) -> str:
        """Take away the beginning of a rest of more than ``length`` characters, whole lines if possible."""
        if len(self.rest) <= length:
            return ""
        end = self._at or self.rest.rfind(" ") + 1 or len(self.rest)
        taken, self.rest = self.rest[:end], self.rest[end:]
        self._at = 0
        return taken


def shown(text: str) -> str:
    """Return the part of ``text`` that is shown, with a note about the rest."""
    if len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]}…\n\n({len(text) - SHOWN:,} more characters: y copies all)"


class _AlignedCells(MarkdownTableContent):
    """The cells of a table, each column aligned as its ruler says."""

    def __init__(
        self, headers: list[Content], rows: list[list[Content]], alignments: list[TextAlign]
    ) -> None:
        super().__init__(headers, rows)
        self._alignments = alignments

    def compose(self) -> ComposeResult:
        for cell, alignment in zip(super().compose(), cycle(self._alignments), strict=False):
            cell.styles.text_align = alignment
            yield cell


class _AlignedTable(MarkdownTable):
    """A table with the alignment that its ruler asks for (``:--``, ``:-:``, ``--:``)."""

    def compose(self) -> ComposeResult:
        self._headers, self._rows = self._get_headers_and_rows()
        yield _AlignedCells(self._headers, self._rows, list(_alignments(self._blocks)))


def _alignments(blocks: Iterable[MarkdownBlock]) -> Iterator[TextAlign]:
    """Iterate over the alignments of the columns, by the heads of them."""
    for block in blocks:
        if isinstance(block, MarkdownTH):
            style = str(block._token.attrGet("style") or "")
            yield cast("TextAlign", style.removeprefix("text-align:") or "left")
        else:
            yield from _alignments(block._blocks)


class AnswerMarkdown(Markdown):
    """Markdown from an agent: tags are text, and a link is only passed on to the user, never opened."""

    BLOCKS = Markdown.BLOCKS | {"table_open": _AlignedTable}

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
    return MarkdownIt("gfm-like", {"html": False, "maxNesting": _MAX_NESTING})
