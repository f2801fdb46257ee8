"""An application with one pane on the whole screen, fed by hand."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.widgets import Input, TextArea

import pallas_tui
from pallas.model import AgentSnapshot, Event
from pallas_tui.frame import FleetFrame
from pallas_tui.shell.themes import OWN
from pallas_tui.widgets.list_pane import ShowText
from pallas_tui.widgets.pane import Pane

from .fake_fleet import NOON, desk

STYLES = Path(pallas_tui.__file__).parent / "styles"


class PaneApp(App[None]):
    """Shows ``pane`` with the workbench's styles; ``feed`` is its pump."""

    CSS_PATH = sorted(STYLES.glob("*.tcss"))
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, pane: Pane, agents: Iterable[AgentSnapshot] = ()) -> None:
        super().__init__()
        for theme in OWN:
            self.register_theme(theme)
        self.animation_level = "none"
        self.pane = pane
        self.now = NOON
        self.stories: list[ShowText] = []
        self.snapshot = replace(desk(), agents=tuple(agents))

    def compose(self) -> ComposeResult:
        """The pane alone."""
        yield self.pane

    def on_mount(self) -> None:
        """The pane is in view from the start."""
        self.pane.show_pane()
        self.feed()

    def on_show_text(self, event: ShowText) -> None:
        """Note what somebody wants to read."""
        self.stories.append(event)

    def feed(self, *agents: AgentSnapshot, events: tuple[Event, ...] = (), later: float = 0) -> None:
        """Give the pane a frame, ``later`` seconds on; without agents those of the frame before."""
        if agents:
            self.snapshot = replace(self.snapshot, agents=agents)
        self.now += later
        self.pane.absorb(FleetFrame(self.snapshot, events, self.now))

    def screen_text(self) -> str:
        """What is on the screen, without colours."""
        strips = self.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


def still(app: App[Any]) -> None:
    """No cursor blinks from now on."""
    for screen in app.screen_stack:
        for widget in screen.query(Input):
            widget.cursor_blink = False
        for area in screen.query(TextArea):
            area.cursor_blink = False
