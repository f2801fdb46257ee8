"""Splits the Markdown of an answer into blocks while it is written: what is complete is not parsed again."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

LINES: Final = 200
"""Most lines of code, or of plain text, in one block."""
WINDOW: Final = 8_000
"""Characters that are parsed at once, if no block is longer."""
LONG: Final = 4_000
"""Characters of an open block from which on it is not parsed with each piece of text."""
_SHARE: Final = 8
"""A long block is parsed again when it has grown by this part of its length."""
DEEPEST: Final = 8
"""Quotes and lists in one another that are drawn; what is nested deeper is shown as its source."""

# The parser leaves out what is nested deeper. A list in a list takes two levels.
_MAX_NESTING: Final = 2 * DEEPEST + 4
_LISTS: Final = ("bullet_list_open", "ordered_list_open")
_OPENINGS: Final = ("blockquote_open", *_LISTS)
_CLOSINGS: Final = tuple(name.replace("open", "close") for name in _OPENINGS)
_LABEL: Final = re.compile(r"\[([^\[\]]{1,999})\]")
_BLANK: Final = re.compile(r"^[ \t]*\n", re.MULTILINE)


class ListRun:
    """A list that is in no other block. Each of its items is a block. ``start`` is None without numbers."""

    __slots__ = ("count", "first", "start")

    def __init__(self, start: int | None) -> None:
        self.start = start
        self.count = 0
        self.first: int | None = None
        """The index of its first settled block."""

    @property
    def digits(self) -> int:
        """Digits of its longest number."""
        return 0 if self.start is None else len(str(self.start + max(0, self.count - 1)))


@dataclass(slots=True, eq=False)
class Block:
    """A piece of an answer that is drawn as a whole.

    ``code`` is the code itself, an ``item`` is number ``ordinal`` of a list. ``joined``: no empty line is
    before it. ``tokens`` may be dropped: ``AnswerBlocks.tokens`` parses the source again.
    """

    source: str
    kind: Literal["markdown", "item", "code", "plain"] = "markdown"
    joined: bool = False
    run: ListRun | None = None
    ordinal: int = 0
    language: str = ""
    tokens: Sequence[Token] | None = None


class _Unit(NamedTuple):
    """A block that is in no other one, or an item of a list that is not; it begins in line ``start``."""

    start: int
    tokens: Sequence[Token]
    run: ListRun | None = None
    ordinal: int = 0


class AnswerBlocks:
    """The blocks of an answer that grows: ``settled`` ones, and the ``open`` ones at its end.

    A block is settled when another one begins behind it. Numbers and links in it may still change: ``stale``
    has the indices of the settled blocks that changed with the last call.
    """

    def __init__(self) -> None:
        self.settled: list[Block] = []
        self.open: list[Block] = []
        self.stale: set[int] = set()
        self._references: dict[str, object] = {}
        self._wanting: dict[str, list[int]] = {}
        """The settled blocks that have a label in brackets which is not defined."""
        self._rest = ""
        """What was parsed and is not settled."""
        self._opening = ""
        """The first line of the block of code whose next lines the rest begins with."""
        self._run: ListRun | None = None
        self._ordinal = 0
        """The item that the rest begins with."""
        self._unparsed = ""

    def feed(self, more: str) -> None:
        """Take in more text, cut at any character."""
        self.stale = set()
        self._unparsed += more
        while len(self._unparsed) > (room := max(WINDOW, len(self._rest))):
            self._take(self._unparsed.rfind("\n", 0, room) + 1 or room)
        waits = len(self._rest) > LONG and len(self._unparsed) * _SHARE < len(self._rest)
        if not waits:
            self._take(len(self._unparsed))
        elif self._unparsed:
            self.open = [each for each in self.open if each.kind != "plain" or each.tokens is not None]
            self.open.append(Block(self._unparsed, "plain", joined=True))

    def end(self) -> None:
        """Settle everything: no more text comes."""
        self.stale = set()
        self._rest += self._unparsed
        self._unparsed = ""
        self._parse(final=True)

    def tokens(self, block: Block) -> Sequence[Token]:
        """Return the tokens of a block."""
        if block.tokens is not None:
            return block.tokens
        tokens = _parser().parse(block.source, {"references": dict(self._references)})
        return tokens[1:-1] if block.kind == "item" else tokens

    def _take(self, length: int) -> None:
        if length:
            self._rest += self._unparsed[:length]
            self._unparsed = self._unparsed[length:]
            self._parse()

    def _parse(self, *, final: bool = False) -> None:
        text = self._opening + self._rest
        while True:
            references = dict(self._references)
            tokens = _parser().parse(text, {"references": references})
            starts = [0, *(found.end() for found in re.finditer("\n", text))]
            units = self._units(tokens)
            if (end := _end_of_deep_item(units, text, starts)) is None:
                break
            at = next(index for index, unit in enumerate(units) if unit.start == end[0])
            self._settle(units[:at], text, starts, end[0])
            source = text[starts[end[0]] : end[1]]
            self._add([Block(source.strip("\n"), "plain", joined=units[at].ordinal > 0)])
            self._promote(references, end[0])
            text = self._rest = text[end[1] :]
            self._opening, self._run = "", None
        # A line that is not complete may become anything: what begins in it settles nothing.
        begun = [index for index, unit in enumerate(units) if _known_by(unit) < len(starts) - 1]
        last = len(units) if final else max(begun, default=0)
        edge = units[last].start if last < len(units) else len(starts)
        self._settle(units[:last], text, starts, edge)
        self.open = []
        if last < len(units):
            self._run, self._ordinal = units[last].run, units[last].ordinal
            if last:
                self._rest, self._opening = text[starts[edge] :], ""
            self.open = self._blocks(units[last:], text, starts, len(starts))
            self._cut_code(units[last], text[starts[edge] :])
        if last or final:
            self._promote(references, edge)
        if final:
            self._rest, self._opening, self._run = "", "", None

    def _units(self, tokens: Sequence[Token]) -> list[_Unit]:
        units: list[_Unit] = []
        runs = [self._run] if self._run is not None else []
        for block in split_blocks(tokens):
            head = block[0]
            if head.type not in _LISTS:
                units.append(_Unit(_start(head), block))
                runs = []
                continue
            start = int(head.attrs.get("start", 1)) if head.type == "ordered_list_open" else None
            ordinal = self._ordinal if runs else 0
            run = runs.pop() if runs else ListRun(start)
            digits = run.digits
            for item in split_blocks(block[1:-1]):
                units.append(_Unit(_start(item[0]), item, run, ordinal))
                ordinal += 1
            run.count = ordinal
            if run.first is not None and run.digits != digits:
                self.stale.update(range(run.first, len(self.settled)))
        return units

    def _settle(self, units: Sequence[_Unit], text: str, starts: Sequence[int], edge: int) -> None:
        self._add(self._blocks(units, text, starts, edge))

    def _blocks(self, units: Sequence[_Unit], text: str, starts: Sequence[int], edge: int) -> list[Block]:
        """Return the blocks of units, the last of which ends before line ``edge``."""
        blocks: list[Block] = []
        edges = [unit.start for unit in units] + [edge]
        for unit, (start, end) in zip(units, pairwise(edges), strict=True):
            source = text[starts[start] : starts[end] if end < len(starts) else len(text)].rstrip("\n")
            head = unit.tokens[0]
            if head.type == "fence":
                goes_on = bool(self._opening) and not start
                blocks += _code(head.content, language_of(head), joined=goes_on)
            elif _depth(unit.tokens) > DEEPEST:
                blocks.append(Block(source, "plain", joined=unit.ordinal > 0, tokens=()))
            elif unit.run is not None:
                joined = unit.ordinal > 0
                blocks.append(Block(source, "item", joined, unit.run, unit.ordinal, tokens=unit.tokens))
            else:
                blocks.append(Block(source, tokens=unit.tokens))
        return blocks

    def _add(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            index = len(self.settled)
            if block.run is not None and block.run.first is None:
                block.run.first = index
            if "[" in block.source and block.kind in ("markdown", "item"):
                for label in {normalizeReference(found) for found in _LABEL.findall(block.source)}:
                    if label not in self._references:
                        self._wanting.setdefault(label, []).append(index)
            self.settled.append(block)

    def _promote(self, references: dict[str, object], edge: int) -> None:
        """Keep the definitions of links that end before line ``edge``."""
        for label, found in references.items():
            if label not in self._references and found["map"][1] <= edge:  # type: ignore[index]
                self._references[label] = found
                for index in self._wanting.pop(label, ()):
                    self.stale.add(index)
                    self.settled[index].tokens = None

    def _cut_code(self, unit: _Unit, text: str) -> None:
        """Settle the beginning of a long block of code that is still open; ``text`` begins with it."""
        head = unit.tokens[0]
        lines = text.count("\n") - 1
        parts = (lines - 1) // LINES
        if head.type != "fence" or parts < 1 or _is_closed(head):
            return
        goes_on = bool(self._opening)
        blocks = _code(head.content, language_of(head), joined=goes_on)
        self._add(blocks[:parts])
        self.open = blocks[parts:]
        starts = [found.end() for found in re.finditer("\n", text)]
        self._opening, self._rest = text[: starts[0]], text[starts[parts * LINES] :]


def plain_blocks(text: str) -> list[Block]:
    """Return the blocks of a text that is no Markdown."""
    lines = text.split("\n")
    return [
        Block("\n".join(lines[start : start + LINES]), "plain", joined=True)
        for start in range(0, len(lines), LINES)
    ]


def _code(code: str, language: str, *, joined: bool) -> list[Block]:
    lines = code.removesuffix("\n").split("\n")
    return [
        Block("\n".join(lines[start : start + LINES]), "code", joined or start > 0, language=language)
        for start in range(0, len(lines), LINES)
    ]


def language_of(fence: Token) -> str:
    """Return the language that a block of code names, or nothing."""
    return fence.info.strip().split(" ")[0]


def _is_closed(fence: Token) -> bool:
    assert fence.map is not None
    lines = fence.content.count("\n") + (not fence.content.endswith("\n") and bool(fence.content))
    return fence.map[1] - fence.map[0] >= lines + 2


def _known_by(unit: _Unit) -> int:
    """Return in which line it is seen what a block is; a table is one by its second line."""
    return unit.start + (unit.tokens[0].type == "table_open")


def _start(token: Token) -> int:
    assert token.map is not None
    return token.map[0]


def split_blocks(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Split tokens into those of each block, with all that is in it."""
    start = 0
    for index, token in enumerate(tokens):
        if token.nesting <= 0 and token.level == tokens[0].level:
            yield tokens[start : index + 1]
            start = index + 1


def _depth(tokens: Sequence[Token]) -> int:
    """Return how deep the tokens of a block are nested in quotes and lists."""
    depth = deepest = int(tokens[0].type == "list_item_open")
    for token in tokens:
        depth += (token.type in _OPENINGS) - (token.type in _CLOSINGS)
        deepest = max(deepest, depth)
    return deepest


def _end_of_deep_item(units: Sequence[_Unit], text: str, starts: Sequence[int]) -> tuple[int, int] | None:
    """Return in which line an item begins that is nested too deep, and where the empty line in it ends.

    The parser gives up at such an item, and takes all that follows as a part of it.
    """
    for index, unit in enumerate(units):
        if unit.run is not None and _depth(unit.tokens) > DEEPEST:
            end = starts[units[index + 1].start] if index + 1 < len(units) else len(text)
            if (found := _BLANK.search(text, starts[unit.start], end)) is not None:
                return unit.start, found.end()
    return None


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("gfm-like", {"html": False, "maxNesting": _MAX_NESTING})
