"""One message, whole."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from pallas.model import Envelope

from ...actions import bindings
from ...clipboard import copy
from ...messages.xml_text import as_text, hang_of, lines_of
from ...text import Glyphs
from ..folded_lines import FoldedLines
from ..pane import Pane


class EnvelopePane(Pane):
    """It stays as it was when it was opened."""

    TITLE = "Message"
    HELP = """\
One message between handlers: what came of it, whether it fits the schema of its class, the frame it belongs
to, and the whole envelope, indented to be read. Where it was refused, **why** has all names; the sender was
told no more than the code. Secrets are masked. **y** copies all that is known, **c** the XML as it is kept.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("envelope")

    def __init__(self, letter: Envelope, running: bool, glyphs: Glyphs) -> None:
        super().__init__(id="envelope")
        self._letter, self._running_run, self._glyphs = letter, running, glyphs

    def compose(self) -> ComposeResult:
        lines = lines_of(self._letter, self._running_run, arrow=self._glyphs.outbound)
        yield FoldedLines(lines, id="envelope-lines", hang=hang_of)

    async def action_copy(self) -> None:
        """Copy all that is known of it."""
        self.notify(await copy(self.app, as_text(self._letter, self._running_run)), markup=False)

    async def action_copy_xml(self) -> None:
        """Copy the envelope."""
        self.notify(await copy(self.app, self._letter.xml), markup=False)
