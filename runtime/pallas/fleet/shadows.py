"""Agents that were made over the API and that files declare as well: told once, each way (SPEC UN-6)."""

import logging

from pallas.catalog.wanted import Wanted
from pallas.config import Project
from pallas.model import Notice
from pallas.model.safe_text import one_line
from pallas.telemetry.events import Hub

from .merging import shadow

log = logging.getLogger(__name__)


class Shadows:
    """Which agents wait for a file to let go of their name."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._known: dict[str, str] = {}

    def look(self, files: Project, wanted: Wanted) -> None:
        """These are the files now, and what was made: what is new about their names is told."""
        found = {name: place for name in wanted.agents if (place := shadow(files, name))}
        for name in found.keys() - self._known.keys():
            self._tell(f"{name}: {found[name]} declares it now; the agent that was made over the API waits")
        for name in self._known.keys() - found.keys():
            self._tell(f"{name}: no file declares it any more; the agent that was made over the API answers")
        self._known = found

    def _tell(self, text: str) -> None:
        log.warning("%s", text)
        self._hub.publish(Notice(level="warning", text=one_line(text, 500)))
