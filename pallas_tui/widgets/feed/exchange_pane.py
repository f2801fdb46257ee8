"""One exchange, whole: headers and bodies, request and response."""

from collections.abc import Hashable
from typing import ClassVar

from rich.cells import chop_cells
from textual.app import ComposeResult
from textual.binding import BindingType

from pallas.model import Exchange

from ...actions import bindings
from ...clipboard import copy
from ...runs.exchange_text import as_json, as_text, lines_of
from ...text import Line, width_of
from ..lines import LineView
from ..pane import Pane


class ExchangeLines(LineView):
    """Lines that are too long go on in the next one."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(id="exchange-lines")
        self._lines = lines_of(exchange)
        self._folded: list[tuple[int, Line]] = []
        self._width = 0

    def on_resize(self) -> None:
        width = max(20, self.line_width)
        if width != self._width:
            self._width = width
            self._folded = [
                (number, part) for number, line in enumerate(self._lines) for part in _fold(line, width)
            ]
        super().on_resize()

    def line_count(self) -> int:
        return len(self._folded)

    def line_at(self, index: int, width: int) -> Line:
        return self._folded[index][1]

    def key_at(self, index: int) -> Hashable:
        return self._folded[index][0]

    def find(self, key: Hashable) -> int | None:
        return next((index for index, (number, _) in enumerate(self._folded) if number == key), None)


class ExchangePane(Pane):
    """It stays as it was when it was opened."""

    TITLE = "Exchange"
    HELP = """\
One request and its answer as they went over the wire: headers, then the JSON-RPC, indented to be read.
Credentials are told by their fingerprint, secrets are masked. **y** copies all of it as text, **c** as JSON.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("exchange")

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(id="exchange")
        self._exchange = exchange

    def compose(self) -> ComposeResult:
        yield ExchangeLines(self._exchange)

    async def action_copy(self) -> None:
        """Copy all of it as text."""
        self.notify(await copy(self.app, as_text(self._exchange)), markup=False)

    async def action_copy_json(self) -> None:
        """Copy all of it as JSON."""
        self.notify(await copy(self.app, as_json(self._exchange)), markup=False)


def _fold(line: Line, width: int) -> list[Line]:
    if width_of(line) <= width:
        return [line]
    folded: list[Line] = []
    row: list[tuple[str, str]] = []
    room = width
    for text, style in line:
        rest = text
        while rest:
            piece = chop_cells(rest, room)[0] if room > 1 else ""
            if not piece:
                folded.append(tuple(row))
                row, room = [], width
                continue
            row.append((piece, style))
            room -= width_of(((piece, style),))
            rest = rest[len(piece) :]
    return [*folded, tuple(row)] if row else folded
