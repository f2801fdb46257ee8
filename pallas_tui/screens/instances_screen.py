"""Fleets elsewhere, on a screen of their own."""

from typing import ClassVar

from textual import on
from textual.binding import BindingType

from ..actions import binding, bindings
from ..instances import Instances
from ..text import Glyphs
from ..widgets.instances import InstancesPane
from .pane_screen import PaneScreen


class InstancesScreen(PaneScreen[str | None]):
    """Ends with the name of the agent to talk to, or None."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("instances_screen"), binding("help")]
    SHOWN_BY = "show.instances"

    def __init__(self, instances: Instances, glyphs: Glyphs) -> None:
        caption = f"attached agents are polled every {instances.pace.interval:g} s"
        super().__init__(InstancesPane(instances, glyphs), glyphs, caption)

    @on(InstancesPane.TalkToInstanceAgent)
    def _open(self, event: InstancesPane.TalkToInstanceAgent) -> None:
        event.stop()
        self.dismiss(event.name)
