"""An agent's Markdown, shown as untrusted text."""

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
from textual.widgets._markdown import (
    MarkdownTable,
    MarkdownTableContent,
    MarkdownTH,
    MarkdownTHead,
    MarkdownTR,
)

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


class _AlignedHeading(MarkdownTH):
    """The head of a column, which has the alignment of its ruler (``:--``, ``:-:``, ``--:``)."""

    @property
    def alignment(self) -> TextAlign:
        """The alignment of the column."""
        style = str(self._token.attrGet("style") or "")
        return cast("TextAlign", style.removeprefix("text-align:") or "left")


class _AlignedRow(MarkdownTR):
    """A row, of heads or of cells."""

    def alignments(self) -> list[TextAlign]:
        """The alignments of the heads in it."""
        return [each.alignment for each in self._blocks if isinstance(each, _AlignedHeading)]


class _AlignedHead(MarkdownTHead):
    """The head of a table."""

    def alignments(self) -> list[TextAlign]:
        """The alignments of the columns."""
        rows = (each for each in self._blocks if isinstance(each, _AlignedRow))
        return [alignment for row in rows for alignment in row.alignments()]


class _AlignedTable(MarkdownTable):
    """A table whose columns are aligned as its ruler says."""

    def compose(self) -> ComposeResult:
        self._headers, self._rows = self._get_headers_and_rows()
        heads = (each for each in self._blocks if isinstance(each, _AlignedHead))
        alignments = [alignment for head in heads for alignment in head.alignments()]
        yield _AlignedCells(self._headers, self._rows, alignments)


class AnswerMarkdown(Markdown):
    """Markdown from an agent: tags are text, and a link is only passed on to the user, never opened."""

    BLOCKS = Markdown.BLOCKS | {
        "table_open": _AlignedTable,
        "thead_open": _AlignedHead,
        "tr_open": _AlignedRow,
        "th_open": _AlignedHeading,
    }

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
