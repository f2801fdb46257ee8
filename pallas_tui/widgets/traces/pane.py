"""The traces pane: for each run, which credential went to which downstream."""

from textual.app import ComposeResult
from textual.widgets import Static

from ..pane import Pane


class TracesPane(Pane, can_focus=True):
    """The auth hops of the fleet's runs."""

    TITLE = "Traces"

    def compose(self) -> ComposeResult:
        yield Static("No hops yet.", markup=False)
