"""The pane shown instead of the chat when the fleet could not start."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from pallas.model import FleetSnapshot
from pallas_tui.placeholder_fleet import outlives

from ..actions import bindings
from ..clipboard import copy
from ..state import Tone
from ..text import Glyphs, Part, count
from .tones import DIM, KEY, STYLES


class Failure(VerticalScroll):
    """Every mistake in full, and what to do about it."""

    HELP = """\
The fleet could not start. Each line names the file and line of a mistake, what is wrong, and what is allowed.
Fix them in your editor, save, and try again here; there is no need to leave the workbench. If the project is
running already, attach to it.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("failure")

    class Retry(Message):
        """The user wants the fleet started again."""

    class Attach(Message):
        """The user wants to see the fleet at ``origin`` that runs already."""

        def __init__(self, origin: str) -> None:
            super().__init__()
            self.origin = origin

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="failure")
        self.display = False
        self._glyphs = glyphs
        self._error = ""
        self.origin = ""
        """Where the fleet of this project runs already; empty if it does not, or cannot be attached to."""

    def compose(self) -> ComposeResult:
        yield Static(id="failure-text", markup=False)

    def tell(self, snapshot: FleetSnapshot | None) -> None:
        """Show why the fleet of ``snapshot`` failed, one mistake a line; None takes the whole thing away."""
        error = (snapshot.error or "no reason was given; see the log") if snapshot is not None else ""
        if error == self._error:
            return
        self._error = error
        self.display = bool(error)
        self.origin = snapshot.origin_elsewhere if snapshot is not None else ""
        self.refresh_bindings()
        lines = [line for line in error.splitlines() if line.strip()]
        runs = snapshot is not None and snapshot.is_elsewhere
        attached = outlives(getattr(self.app, "fleet", None))
        what = "The fleet could not be attached" if attached else "The fleet could not start"
        cure: list[Part] = [("Fix the files in your editor, save, then press ", DIM)]
        if runs:
            what, cure = "This project is running already", [("", DIM)]
        elif attached:
            cure = [("Fix that, then press ", DIM)]
        if self.origin:
            cure = [("a", KEY), (" attaches to it; it keeps running when you leave. ", DIM)]
        text = Content.assemble(
            (f"{self._glyphs.error} {what}", STYLES[Tone.ERROR]),
            (f"   {count(len(lines), 'mistake')}\n\n" if len(lines) > 1 else "\n\n", DIM),
            "\n\n".join(lines),
            "\n\n",
            *cure,
            ("r", KEY),
            (" starts it here once the other has ended. " if runs else " to try again. ", DIM),
            ("y", KEY),
            (" copies this, ", DIM),
            ("4", KEY),
            (" shows the log, ", DIM),
            ("^q", KEY),
            (" quits.", DIM),
        )
        self.query_one(Static).update(text)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to attach only where there is something to attach to."""
        return action != "attach" or bool(self.origin)

    def action_attach(self) -> None:
        """Show the fleet that runs already."""
        self.post_message(self.Attach(self.origin))

    def action_retry(self) -> None:
        """Start the fleet again."""
        self.post_message(self.Retry())

    async def action_copy(self) -> None:
        """Copy the mistakes."""
        self.notify(await copy(self.app, self._error))
