"""One exchange, whole: headers and bodies, request and response."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from pallas.model import Exchange

from ...actions import bindings
from ...clipboard import copy
from ...runs.exchange_text import as_json, as_text, lines_of
from ..folded_lines import FoldedLines
from ..pane import Pane


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
        yield FoldedLines(lines_of(self._exchange), id="exchange-lines")

    async def action_copy(self) -> None:
        """Copy all of it as text."""
        self.notify(await copy(self.app, as_text(self._exchange)), markup=False)

    async def action_copy_json(self) -> None:
        """Copy all of it as JSON."""
        self.notify(await copy(self.app, as_json(self._exchange)), markup=False)
