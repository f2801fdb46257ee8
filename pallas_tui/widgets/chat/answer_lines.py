"""The text of a message in one widget, which draws the rows that are seen."""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, count, islice, pairwise, repeat, zip_longest
from typing import ClassVar, Final, NamedTuple

from rich.segment import Segment
from textual.cache import LRUCache
from textual.containers import VerticalScroll
from textual.content import Content, Span
from textual.geometry import Region, Size
from textual.highlight import ANSIDarkHighlightTheme, ANSILightHighlightTheme, HighlightTheme
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style

from pallas.safe_text import PieceSanitizer, sanitize

from ...chat.answer_blocks import AnswerBlocks, Block, plain_blocks
from ...text import UNICODE, Glyphs
from .answer_layout import Code, LaidBlock, Row, lay_out
from .tall_widget import TallWidget

SHOWN: Final = 200_000
"""Characters of a message that are shown; a copy has all."""
ROOM: Final = 8
"""A long answer grows by this part of the screen while it is written: what is above moves then, and is sent
again."""
_ROWS: Final = 300
_BLOCKS: Final = 60
_FOUND: Final = ("underline", "bold reverse")
"""The styles of a match in the same message, and of the one that is selected."""

_numbers: Final = count()


def shown(text: str) -> str:
    """Return the part of ``text`` that is shown, with a note about the rest."""
    if len(text) <= SHOWN:
        return text
    return f"{text[:SHOWN]}…\n\n({len(text) - SHOWN:,} more characters: y copies all)"


class DrawnRows:
    """What was drawn last of the messages of one conversation: the rest is drawn again when it is seen."""

    def __init__(self) -> None:
        self.rows: LRUCache[tuple[object, ...], list[Segment]] = LRUCache(_ROWS)
        self.blocks: LRUCache[tuple[int, int], LaidBlock] = LRUCache(_BLOCKS)


class TextMatch(NamedTuple):
    """A place where text was found: a part of a line."""

    line: int
    start: int
    end: int


class AnswerScroll(VerticalScroll):
    """Texts of messages, scrolled. It has the styles in them: in each text they would take 100 KB."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"answer--h{level}" for level in range(1, 7)),
        *(f"answer--{name}" for name in ("em", "strong", "s", "code", "bullet", "bar")),
        *(f"answer--{name}" for name in ("quote", "fence", "rule", "line", "th")),
    }


class AnswerLines(TallWidget):
    """Text, or Markdown of an agent, that may grow, in an ``AnswerScroll``.

    It keeps no row that is not seen, only their number. Nothing of Markdown is ever opened: HTML is text, and
    a link is passed on to the user.
    """

    class LinkTaken(Message):
        """A link was clicked; ``href`` is its target."""

        def __init__(self, href: str) -> None:
            super().__init__()
            self.href = href

    def __init__(
        self,
        text: str = "",
        *,
        markdown: bool = True,
        live: bool = False,
        glyphs: Glyphs = UNICODE,
        drawn: DrawnRows | None = None,
    ) -> None:
        """It is ``live`` until ``settle`` is called. The messages of a conversation share ``drawn``."""
        super().__init__(classes="chat-text")
        self._markdown, self._glyphs = markdown, glyphs
        self._live = live
        self._drawn = drawn or DrawnRows()
        self._text = ""
        self._start_again()
        self._laid_width = 0
        self._looks = 0
        self._style: Style | None = None
        self._styles: dict[str, Style] = {}
        self._pattern: re.Pattern[str] | None = None
        self._wanted: TextMatch | None = None
        self.show(text)

    def _start_again(self) -> None:
        self._parser = AnswerBlocks()
        self._sanitizer = PieceSanitizer()
        self._ended = False
        self._known = 0
        """Settled blocks of which the rows are counted."""
        self._blocks: list[Block] = []
        self._keys = array("Q")
        self._row_counts = array("I")
        self._line_counts = array("I")
        self._open_rows: list[Row] = []
        """The rows of the blocks that were not settled when it was drawn last."""
        self._row_ends = array("I")
        self._line_ends = array("I")

    # Text

    def show(self, text: str) -> None:
        """Show ``text``, of which an earlier part may already be shown, or another text before it."""
        if text == self._text:
            self._text = text  # it may be another copy of it
            return
        if self._ended or not text.startswith(self._text):
            self._start_again()
            self._text = ""
        before, self._text = self._text, text
        if self._markdown:
            self._parser.feed(self._sanitizer.feed(text[len(before) : SHOWN]))
        else:
            self._parser.settled = plain_blocks(sanitize(shown(text)))
        if not self._live:
            self._end()
        self._take_blocks()

    def settle(self) -> None:
        """Show the end of the text as what it is, in as many rows as it has: no more comes."""
        if self._live:
            before = self.shown_rows
            self._live = False
            self._end()
            self._take_blocks()
            self.refresh(layout=self.shown_rows != before)

    def _end(self) -> None:
        self._ended = True
        if self._markdown:
            stale = self._parser.stale
            self._parser.feed(self._sanitizer.end() + shown(self._text)[SHOWN:])
            stale |= self._parser.stale
            self._parser.end()
            self._parser.stale |= stale

    def _take_blocks(self) -> None:
        """Count the rows of the blocks that changed, and draw those."""
        parser, first = self._parser, self._known
        stale = [index for index in parser.stale if index < first]
        self._blocks[first:] = [*parser.settled[first:], *parser.open]
        self._known = len(parser.settled)
        if self._laid_width:
            before, drawn = self.shown_rows, self._open_rows
            self._count([*stale, *range(first, len(self._blocks))])
            new = [row for index in range(first, len(self._blocks)) for row in self._laid(index).rows]
            opened = sum(self._row_counts[self._known :])
            self._open_rows = new[len(new) - opened :]
            if self.shown_rows != before or stale:
                self.refresh(layout=True)
                return
            pairs = zip_longest(drawn, new)
            changed = [
                at for at, (old, row) in enumerate(pairs) if old is None or row is None or old[:3] != row[:3]
            ]
            if changed:
                above = self._row_ends[first - 1] if first else 0
                height = changed[-1] - changed[0] + 1
                self.refresh(Region(0, above + changed[0], self._laid_width, height))

    def _count(self, changed: Sequence[int]) -> None:
        """Count the rows and the lines of the blocks that changed; those at the end may be new, or gone."""
        length = len(self._blocks)
        for counts in (self._keys, self._row_counts, self._line_counts):
            del counts[length:]
            counts.extend(repeat(0, length - len(counts)))
        for index in changed:
            self._keys[index] = next(_numbers)
            laid = self._laid(index)
            self._row_counts[index], self._line_counts[index] = len(laid.rows), len(laid.lines)
        first = min(changed, default=length)
        for ends, counts in ((self._row_ends, self._row_counts), (self._line_ends, self._line_counts)):
            del ends[first:]
            start = ends[-1] if ends else 0
            ends.extend(islice(accumulate(counts[first:], initial=start), 1, None))

    def _laid(self, index: int) -> LaidBlock:
        key = (self._keys[index], self._laid_width)
        if (laid := self._drawn.blocks.get(key)) is None:
            block = self._blocks[index]
            is_parsed = block.kind in ("markdown", "item")
            tokens = self._parser.tokens(block) if is_parsed else ()
            laid = lay_out(block, tokens, self._laid_width, self._glyphs, first=not index)
            if index < self._known:
                block.tokens = None
            self._drawn.blocks[key] = laid
        return laid

    # Size

    @property
    def rows(self) -> int:
        """How many rows the text has."""
        return self._row_ends[-1] if self._row_ends else 0

    @property
    def shown_rows(self) -> int:
        """How many rows it takes: a long one that is written has room for a few more, and moves seldom."""
        rows = self.rows
        if not self._live or not self.is_attached:
            return rows
        step = max(1, self.app.size.height // ROOM)
        return -(-rows // step) * step if rows > step else rows

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        self._lay(width)
        return self.shown_rows

    def _lay(self, width: int) -> None:
        if width != self._laid_width and width > 0:
            self._laid_width = width
            self._count(range(len(self._blocks)))
            self._open_rows = []

    # Drawing

    def render_lines(self, crop: Region) -> list[Strip]:
        style = self.visual_style
        if style != self._style:
            self._style, self._looks = style, next(_numbers)
            self._styles.clear()
        strips = [self.render_line(y) for y in crop.line_range]
        background = self.background_colors[1]
        for line_filter in self.get_line_filters():
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        hover = self.hover_style
        if "@click" in hover.meta:
            strips = [strip.style_links(hover.link_id, self.link_style_hover) for strip in strips]
        if crop.column_span != (0, self.size.width):
            strips = [strip.crop(*crop.column_span) for strip in strips]
        return strips

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        self._lay(width)  # it may be one whose height was known from before
        index = bisect_right(self._row_ends, y)
        if index >= len(self._blocks) or not self.is_attached:  # it may just have been removed
            return Strip.blank(width, self.visual_style.rich_style)
        above = self._row_ends[index - 1] if index else 0
        lines_above = self._line_ends[index - 1] if index else 0
        laid = self._laid(index)
        row = laid.rows[y - above]
        marks = [*self._selected(row, lines_above), *self._matched(laid, row, lines_above)]
        key = (self._keys[index], y - above, lines_above, width, self._looks)
        # A strip remembers each part that was cut from it: only its text and styles are kept.
        if not marks and (known := self._drawn.rows.get(key)) is not None:
            return Strip(known, width)
        spans = [*row.spans, *self._colours(laid, row), *marks]
        strip = self._strip(row, spans, row.line + lines_above)
        if not marks:
            self._drawn.rows[key] = list(strip)
        return strip

    def _strip(self, row: Row, spans: list[Span], line: int) -> Strip:
        """Draw a row; each character knows where in the text it is."""
        base = self.visual_style
        edges = sorted({edge for spot in row.spots for edge in spot[:2]} | {row.lead})
        segments: list[Segment] = []
        at = 0
        places = iter([*row.spots, None])
        spot = next(places)
        for text, style in Content(row.text, spans).render(base, end="", parse_style=self._style_of):
            whole = base + style
            end = at + len(text)
            cuts = [at, *(edge for edge in edges if at < edge < end), end]
            for start, stop in pairwise(cuts):
                while spot is not None and start >= spot.end:
                    spot = next(places)
                piece = text[start - at : stop - at]
                if spot is not None and start >= spot.start:
                    place = spot.at + start - spot.start
                elif start < row.lead and row.spots:
                    place = max(0, row.spots[0].at - row.lead + start)
                else:
                    segments.append(Segment(piece, whole.rich_style))
                    continue
                placed = whole.rich_style_with_offset(place, line)
                if "@click" in placed.meta:
                    placed += self.link_style
                segments.append(Segment(piece, placed))
            at = end
        if not segments:
            segments.append(Segment(" ", base.rich_style_with_offset(0, line)))
        return Strip(segments).adjust_cell_length(self.size.width, base.rich_style)

    @property
    def _scroll(self) -> AnswerScroll:
        return next(each for each in self.ancestors if isinstance(each, AnswerScroll))

    def _style_of(self, style: Style | str) -> Style:
        """Return a style, with the background as it is in the style sheet: it may be a part of a colour."""
        if isinstance(style, Style) or not style.startswith("."):
            return self._get_style(style)
        if (known := self._styles.get(style)) is None:
            rules = self._scroll.get_component_styles(style[1:])
            text = rules.text_style
            known = self._styles[style] = Style(
                rules.background if rules.has_rule("background") else None,
                rules.color if rules.has_rule("color") else None,
                bold=text.bold,
                italic=text.italic,
                underline=text.underline,
                strike=text.strike,
            )
        return known

    def _colours(self, laid: LaidBlock, row: Row) -> Iterator[Span]:
        if laid.codes:
            if laid.colours is None:
                laid.colours = {}
                for code in laid.codes:
                    laid.colours |= self._coloured(code, laid.lines)
            for start, end, style in laid.colours.get(row.line, ()):
                yield from row.spans_of(start, end, style)

    def _coloured(self, code: Code, lines: Sequence[str]) -> dict[int, list[Span]]:
        """Return the colours of each line of code."""
        if not code.language:
            return {}
        # What colours code is read when the first code is seen.
        from pygments.lexers import get_lexer_by_name
        from pygments.util import ClassNotFound

        try:
            lexer = get_lexer_by_name(code.language)
        except ClassNotFound:
            return {}
        styles = self._code_styles()
        found: dict[int, list[Span]] = {}
        line, at = code.first, code.indent
        text = "\n".join(each[code.indent :] for each in lines[code.first : code.end]) + "\n"
        for _, kind, value in lexer.get_tokens_unprocessed(text):
            while kind and kind not in styles:
                kind = kind.parent
            style = styles.get(kind, "")
            for index, piece in enumerate(value.split("\n")):
                if index:
                    line, at = line + 1, code.indent
                if style and piece:
                    found.setdefault(line, []).append(Span(at, at + len(piece), style))
                at += len(piece)
        return found

    def _code_styles(self) -> dict[tuple[str, ...], str]:
        if not self.app.native_ansi_color:
            return HighlightTheme.STYLES
        return (ANSIDarkHighlightTheme if self.app.current_theme.dark else ANSILightHighlightTheme).STYLES

    def notify_style_update(self) -> None:
        """The theme may be another one."""
        super().notify_style_update()
        self._style = None

    def action_link(self, href: str) -> None:
        """Pass a link on that was clicked."""
        self.post_message(self.LinkTaken(href))

    # Selection

    def _selected(self, row: Row, above: int) -> Iterator[Span]:
        selection = self.text_selection
        if selection is None or (span := selection.get_span(row.line + above)) is None:
            return
        start, end = span
        style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
        yield from row.spans_of(max(0, start), len(row.text) + SHOWN if end < 0 else end, style)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text, as it was before it was broken into rows."""
        start, end = selection
        first = max(0, start.y) if start is not None else 0
        last = end.y if end is not None else len(self._line_ends) and self._line_ends[-1] - 1
        lines = list(self._lines(first, last))
        if not lines:
            return "", "\n"
        if end is not None and end.y < first + len(lines):
            lines[-1] = lines[-1][: max(0, end.x)]
        if start is not None:
            lines[0] = lines[0][max(0, start.x) :]
        return "\n".join(lines), "\n"

    def _lines(self, first: int, last: int) -> Iterator[str]:
        """Yield the lines of text from ``first`` to ``last``."""
        index = bisect_right(self._line_ends, first)
        at = self._line_ends[index - 1] if index else 0
        while index < len(self._blocks) and at <= last:
            lines = self._laid(index).lines
            yield from lines[max(0, first - at) : last + 1 - at]
            at += len(lines)
            index += 1

    # Find

    def find(self, pattern: "re.Pattern[str]") -> list[TextMatch]:
        """Return all places where the text matches."""
        if not self._line_ends:
            return []
        return [
            TextMatch(number, *found.span())
            for number, line in enumerate(self._lines(0, self._line_ends[-1]))
            for found in pattern.finditer(line)
        ]

    def mark(self, pattern: "re.Pattern[str] | None", wanted: TextMatch | None = None) -> None:
        """Mark all matches, and one of them more than the others; none without a pattern."""
        if pattern is not None or self._pattern is not None:
            self._pattern, self._wanted = pattern, wanted
            self.refresh()

    def row_of(self, match: TextMatch) -> int:
        """Return the row in which a match begins."""
        index = min(bisect_right(self._line_ends, match.line), len(self._blocks) - 1)
        above = self._row_ends[index - 1] if index else 0
        line = match.line - (self._line_ends[index - 1] if index else 0)
        rows = [number for number, row in enumerate(self._laid(index).rows) if row.line == line]
        style = ""
        found = (
            number
            for number in rows
            if any(self._laid(index).rows[number].spans_of(match.start, match.start + 1, style))
        )
        return above + next(found, rows[0] if rows else 0)

    def _matched(self, laid: LaidBlock, row: Row, above: int) -> Iterator[Span]:
        if self._pattern is None:
            return
        for found in self._pattern.finditer(laid.lines[row.line]):
            match = TextMatch(row.line + above, *found.span())
            yield from row.spans_of(match.start, match.end, _FOUND[match == self._wanted])
