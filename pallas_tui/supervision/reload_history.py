"""What the main screen keeps of reloads and blocked loops, for every pane and screen that shows it."""

from collections.abc import Callable

from ..frame import FleetFrame
from .agent_versions import Versions
from .loop_blocks import Blocks


class History:
    """``watchers`` are called after each frame, with whether anything in here is different."""

    def __init__(self) -> None:
        self.versions = Versions()
        self.blocks = Blocks()
        self.watchers: list[Callable[[bool], None]] = []
        self.frame: FleetFrame | None = None

    def absorb(self, frame: FleetFrame) -> None:
        """Take in a frame, before anybody shows it."""
        self.frame = frame
        before = self.blocks.open
        live = {agent.name: agent.version for agent in frame.snapshot.agents}
        changed = self.versions.absorb(frame.events, live)
        self.blocks.absorb(frame.events, frame.now, bool(frame.dropped))
        for watcher in tuple(self.watchers):
            watcher(changed or self.blocks.open != before)
