"""Lays out one block of an answer: the rows of the screen, and the lines of text that they show."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple

from markdown_it.token import Token
from rich.cells import cell_len
from textual.content import Span
from textual.style import Style

from pallas.safe_text import sanitize

from ...chat.answer_blocks import Block, language_of, split_blocks
from ...text import UNICODE, Glyphs, row_spans

_LEAST: Final = 10
"""Cells of text that a row has at least, however deep it is nested."""
_TAB: Final = 8
_BULLETS: Final = "\u2022\u25aa\u2023\u2b51\u25e6"
_LINES: Final = "─│┌┬┐├┼┤└┴┘"
_ASCII_LINES: Final = "-|+++++++++"
_TOP, _RULE, _BOTTOM = 2, 5, 8
_INLINE: Final = {"em_open": ".answer--em", "strong_open": ".answer--strong", "s_open": ".answer--s"}
_LISTS: Final = ("bullet_list_open", "ordered_list_open")
_BLANKS: Final = re.compile(r"\s+")

Inline = tuple[str, list[Span]]
"""Text without line breaks, and the styles in it."""


class AnswerSpot(NamedTuple):
    """The characters from ``start`` to ``end`` of a row are those from ``at`` on of its line."""

    start: int
    end: int
    at: int


class Row(NamedTuple):
    """One row of the screen, which shows a part of line ``line``; ``lead`` characters are before that."""

    text: str
    spans: tuple[Span, ...]
    spots: tuple[AnswerSpot, ...]
    lead: int
    line: int

    def spans_of(self, start: int, end: int, style: Style | str) -> Iterable[Span]:
        """Return where the characters from ``start`` to ``end`` of the line are in the row."""
        for spot in self.spots:
            first, last = max(start, spot.at), min(end, spot.at + spot.end - spot.start)
            if first < last:
                yield Span(spot.start + first - spot.at, spot.start + last - spot.at, style)


class Code(NamedTuple):
    """Lines of code, from ``first`` to ``end``, each behind ``indent`` characters; coloured when drawn."""

    first: int
    end: int
    language: str
    indent: int


@dataclass(slots=True)
class LaidBlock:
    """A block in rows of a width. ``lines`` are its text as it is copied."""

    rows: list[Row] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    codes: list[Code] = field(default_factory=list)
    colours: dict[int, list[Span]] | None = None
    """The colours of its code by line; None until they are needed."""


class _Lead(NamedTuple):
    """What is before the text in a quote or an item: drawn and copied, in its first row and in the others."""

    first: str
    rest: str
    copied_first: str
    copied_rest: str
    style: str
    fill: str = ""


def lay_out(
    block: Block, tokens: Sequence[Token], width: int, glyphs: Glyphs = UNICODE, *, first: bool = False
) -> LaidBlock:
    """Return a block in rows of ``width`` cells; no empty row is before the ``first`` of an answer."""
    layout = _Layout(width, glyphs)
    if not block.joined and not first:
        layout.line("")
    if block.kind == "plain":
        layout.plain(block.source)
    elif block.kind == "code":
        layout.code(block.source.split("\n"), block.language)
    elif block.run is not None:
        start = block.run.start
        layout.item(tokens, None if start is None else start + block.ordinal, block.run.digits)
    else:
        layout.blocks(tokens)
    return layout.laid


def inline(token: Token) -> list[Inline]:
    """Return the lines of an inline token, with the styles in them."""
    text = ""
    spans: list[Span] = []
    begun: list[tuple[str | Style, int]] = []
    for child in token.children or ():
        match child.type:
            case "text":
                text += sanitize(_BLANKS.sub(" ", child.content))
            case "hardbreak":
                text += "\n"
            case "softbreak":
                text += " "
            case "code_inline":
                begin = len(text)
                text += sanitize(child.content.replace("\n", " "))
                spans.append(Span(begin, len(text), ".answer--code"))
            case "image":
                begin = len(text)
                text += f"🖼  ({sanitize(child.content)})" if child.content else "🖼  "
                spans += _link(begin, len(text), str(child.attrs.get("src", "")))
            case "link_open":
                begun.append((str(child.attrs.get("href", "")), len(text)))
            case "link_close":
                href, begin = begun.pop()
                spans += _link(begin, len(text), str(href))
            case kind if kind in _INLINE:
                begun.append((_INLINE[kind], len(text)))
            case kind if kind.endswith("_close") and begun:
                style, begin = begun.pop()
                spans.append(Span(begin, len(text), style))
            case _:
                text += sanitize(child.content)
    lines: list[Inline] = []
    start = 0
    for line in text.split("\n"):
        lines.append((line, _cut(spans, start, start + len(line))))
        start += len(line) + 1
    return lines


def _link(start: int, end: int, href: str) -> list[Span]:
    return [Span(start, end, Style.from_meta({"@click": f"link({href!r})"}))]


def _cut(spans: Iterable[Span], start: int, end: int, shift: int = 0) -> list[Span]:
    """Return the part of spans from ``start`` to ``end``, from ``shift`` on."""
    return [
        Span(max(a, start) - start + shift, min(b, end) - start + shift, style)
        for a, b, style in spans
        if a < end and b > start
    ]


class _Layout:
    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self.laid = LaidBlock()
        self._width = max(1, width)
        self._glyphs = glyphs
        self._strokes = _LINES if glyphs is UNICODE else _ASCII_LINES
        self._leads: list[_Lead] = []
        self._begun: list[bool] = []
        self._bullets = 0
        self._copied = ""
        """What is copied before the text of the last line."""

    # Blocks

    def plain(self, text: str) -> None:
        """Add text as it is."""
        for line in text.split("\n"):
            self.line(line)

    def code(self, lines: Sequence[str], language: str) -> None:
        """Add code."""
        first = len(self.laid.lines)
        for line in lines:
            self.line(line, base="$text", is_code=True)
        self.laid.codes.append(Code(first, len(self.laid.lines), language, len(self._copied)))

    def blocks(self, tokens: Sequence[Token]) -> None:
        """Add the blocks that these tokens make, with an empty row between them; fewer in a list."""
        before = ""
        for block in split_blocks(tokens):
            kind = block[0].type
            tight = self._bullets and (kind in _LISTS or before in _LISTS)
            if before and not tight:
                self.line("")
            self._block(block)
            before = kind

    def item(self, tokens: Sequence[Token], number: int | None, digits: int) -> None:
        """Add an item of a list; its number is None for a bullet."""
        if number is None:
            bullets = _BULLETS if self._glyphs is UNICODE else "*"
            mark, copied = f"{bullets[self._bullets % len(bullets)]} ", "- "
        else:
            mark, copied = f" {number:>{digits}}. ", f"{number}. "
        lead = _Lead(mark, " " * len(mark), copied, " " * len(copied), ".answer--bullet")
        self._bullets += 1
        self._inside(lead, tokens[1:-1])
        self._bullets -= 1

    def _block(self, block: Sequence[Token]) -> None:
        head = block[0]
        match head.type:
            case "paragraph_open" | "heading_open":
                style = f".answer--{head.tag}" if head.type == "heading_open" else ""
                for text, spans in inline(block[1]):
                    self.line(text, spans, base=style)
            case "fence" | "code_block":
                language = language_of(head) if head.type == "fence" else ""
                self.code(sanitize(head.content).removesuffix("\n").split("\n"), language)
            case "hr":
                stroke = self._strokes[0] * self._room()
                self._row(
                    stroke, [Span(0, len(stroke), ".answer--rule")], [AnswerSpot(0, 1, 0)], copied="---"
                )
            case "blockquote_open":
                bar = f"{self._glyphs.focus} "
                self._inside(_Lead(bar, bar, "> ", "> ", ".answer--bar", ".answer--quote"), block[1:-1])
            case "bullet_list_open":
                for item in split_blocks(block[1:-1]):
                    self.item(item, None, 0)
            case "ordered_list_open":
                items = list(split_blocks(block[1:-1]))
                start = int(head.attrs.get("start", 1))
                for number, item in enumerate(items, start):
                    self.item(item, number, len(str(start + len(items) - 1)))
            case "table_open":
                self._table(block)

    def _inside(self, lead: _Lead, tokens: Sequence[Token]) -> None:
        self._leads.append(lead)
        self._begun.append(False)
        if tokens:
            self.blocks(tokens)
        else:
            self.line("")
        self._leads.pop()
        self._begun.pop()

    # Rows

    def line(self, text: str, spans: Sequence[Span] = (), *, base: str = "", is_code: bool = False) -> None:
        """Add a line of text, in as many rows as it needs."""
        room = self._room() - 2 * is_code
        shown, places = _expanded(text)
        if places:
            spans = [Span(bisect_left(places, a), bisect_left(places, b), style) for a, b, style in spans]
        found = list(row_spans(shown, room, room))
        for index, (start, end) in enumerate(found or [(0, 0)]):
            drawn = (
                [Span(0, end - start, base), *_cut(spans, start, end)] if base else _cut(spans, start, end)
            )
            spots = _spots_of(places, start, end) if places else [AnswerSpot(0, end - start, start)]
            self._row(shown[start:end], drawn, spots, copied=None if index else text, is_code=is_code)

    def _room(self) -> int:
        return max(_LEAST, self._width - sum(cell_len(lead.rest) for lead in self._leads))

    def _row(
        self,
        text: str,
        spans: Iterable[Span],
        spots: Sequence[AnswerSpot],
        *,
        copied: str | None = None,
        is_code: bool = False,
    ) -> None:
        """Add a row: the first one of a line that is ``copied`` as that, or another one of the last line."""
        lead, fills, drawn = "", [], list[Span]()
        if copied is not None:
            self._copied = ""
        for index, part in enumerate(self._leads):
            first = copied is not None and not self._begun[index]
            if part.fill:
                fills.append((len(lead), part.fill))
            piece = part.first if first else part.rest
            drawn.append(Span(len(lead), len(lead) + len(piece), part.style))
            lead += piece
            if copied is not None:
                self._copied += part.copied_first if first else part.copied_rest
                self._begun[index] = True
        if copied is not None:
            self.laid.lines.append(self._copied + copied)
        if is_code:
            fills.append((len(lead), ".answer--fence"))
            lead += " "
        shift = len(lead)
        whole = lead + text
        if fills:
            whole += " " * max(0, self._width - cell_len(whole))
        backgrounds = (Span(start, len(whole), style) for start, style in fills)
        shifted = (Span(a + shift, b + shift, style) for a, b, style in spans if a < b)
        before = len(self._copied)
        moved = tuple(AnswerSpot(a + shift, b + shift, at + before) for a, b, at in spots)
        line = len(self.laid.lines) - 1
        self.laid.rows.append(Row(whole, (*backgrounds, *drawn, *shifted), moved, shift, line))

    # Tables

    def _table(self, block: Sequence[Token]) -> None:
        alignments = [_alignment(token) for token in block if token.type == "th_open"]
        cells = [inline(token) for token in block if token.type == "inline"]
        joined = [
            (" ".join(text for text, _ in cell), [s for _, spans in cell for s in spans]) for cell in cells
        ]
        columns = len(alignments)
        rows = [joined[start : start + columns] for start in range(0, len(joined), columns)]
        copies = [f"| {' | '.join(text for text, _ in row)} |" for row in rows]
        wanted = [max(1, *(cell_len(row[at][0]) for row in rows)) for at in range(columns)]
        widths = _fitted(wanted, self._room() - 3 * columns - 1)
        if not widths:
            self.plain("\n".join(copies))
            return
        broken = [
            [list(row_spans(text, width, width)) for (text, _), width in zip(row, widths, strict=True)]
            for row in rows
        ]
        ruled = any(len(parts) > 1 for row in broken[1:] for parts in row)
        self._stroke(widths, _TOP, copies[0])
        for number, (row, parts) in enumerate(zip(rows, broken, strict=True)):
            if ruled and number > 1:
                self._stroke(widths, _RULE)
            copied = copies[number] if number else None
            self._table_row(row, parts, widths, alignments, copied)
            if not number:
                self._stroke(widths, _RULE, f"|{'|'.join(map(_RULERS.__getitem__, alignments))}|")
        self._stroke(widths, _BOTTOM)

    def _stroke(self, widths: Sequence[int], kind: int, copied: str | None = None) -> None:
        strokes = self._strokes
        left, middle, right = strokes[kind], strokes[kind + 1], strokes[kind + 2]
        text = left + middle.join(self._strokes[0] * (width + 2) for width in widths) + right
        self._row(text, [Span(0, len(text), ".answer--line")], [AnswerSpot(0, 1, 0)], copied=copied)

    def _table_row(
        self,
        row: Sequence[Inline],
        broken: Sequence[Sequence[tuple[int, int]]],
        widths: Sequence[int],
        alignments: Sequence[str],
        copied: str | None,
    ) -> None:
        wall = self._strokes[1]
        for number, parts in enumerate(zip_longest(*broken, fillvalue=(0, 0))):
            text, spans, spots = wall, [Span(0, 1, ".answer--line")], list[AnswerSpot]()
            at = 2
            for (cell, styles), (start, end), width, side in zip(row, parts, widths, alignments, strict=True):
                free = width - cell_len(cell[start:end])
                left = {"left": 0, "center": free // 2, "right": free}[side]
                begin = len(text) + 1 + left
                length = end - start
                spots.append(AnswerSpot(begin, begin + length, at + start))
                if copied is None:
                    spans.append(Span(begin, begin + length, ".answer--th"))
                spans += _cut(styles, start, end, begin)
                text += f" {' ' * left}{cell[start:end]}{' ' * (free - left)} {wall}"
                spans.append(Span(len(text) - 1, len(text), ".answer--line"))
                at += len(cell) + 3
            self._row(text, spans, spots, copied=None if number else copied)


_RULERS: Final = {"left": " --- ", "center": " :-: ", "right": " --: "}


def _alignment(head: Token) -> str:
    return str(head.attrs.get("style") or "").removeprefix("text-align:") or "left"


def _fitted(wanted: Sequence[int], room: int) -> list[int]:
    """Return widths of columns that fit in ``room`` cells, narrow ones first; none if there are none."""
    if room < 2 * len(wanted):
        return []
    widths = list(wanted)
    left, columns = room, len(wanted)
    for index in sorted(range(columns), key=wanted.__getitem__):
        widths[index] = min(wanted[index], left // columns)
        left -= widths[index]
        columns -= 1
    return widths


def _expanded(text: str) -> tuple[str, list[int]]:
    """Return text with blanks for tabs, and the place of each of its characters; no places without tabs."""
    if "\t" not in text:
        return text, []
    shown, places, cells = "", list[int](), 0
    for at, character in enumerate(text):
        piece = " " * (_TAB - cells % _TAB) if character == "\t" else character
        shown += piece
        cells += cell_len(piece)
        places += [at] * len(piece)
    return shown, places


def _spots_of(places: Sequence[int], start: int, end: int) -> list[AnswerSpot]:
    """Return the spots of a part of a line with tabs, of which only the first blank has a place."""
    spots: list[AnswerSpot] = []
    for index in range(start, end):
        if index and places[index] == places[index - 1]:
            continue
        last = spots[-1] if spots else None
        here = index - start
        if last is not None and last.end == here and last.at + last.end - last.start == places[index]:
            spots[-1] = last._replace(end=here + 1)
        else:
            spots.append(AnswerSpot(here, here + 1, places[index]))
    return spots or [AnswerSpot(0, 0, places[start] if start < len(places) else 0)]
