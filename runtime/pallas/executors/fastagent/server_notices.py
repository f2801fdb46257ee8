"""Tells operators once when a server of an agent is lost, and once when it is back."""

from collections.abc import Callable
from typing import Final, Literal

from pallas.model import Notice
from pallas.safe_text import one_line

_MAX_TEXT: Final = 300


class ServerNotices:
    """The servers that are lost, of all instances of ``agent``; each instance has connections of its own."""

    def __init__(self, agent: str) -> None:
        self.tell: Callable[[Notice], None] = lambda _: None
        self._agent = agent
        self._lost: set[str] = set()

    def lost(self, server: str, why: str) -> None:
        """Note that an instance has lost a server."""
        if server not in self._lost:
            self._lost.add(server)
            self._publish("warning", server, why)

    def returned(self, server: str, how: str) -> None:
        """Note that every instance has a server."""
        if server in self._lost:
            self._lost.discard(server)
            self._publish("info", server, how)

    def _publish(self, level: Literal["info", "warning"], server: str, words: str) -> None:
        name = one_line(server, 80)
        text = one_line(f"server {name} {words}", _MAX_TEXT)
        self.tell(Notice(level=level, agent=self._agent, server=name, text=text))
