"""Tells operators when a server of an agent is lost, how attempts to connect it end, and when it is back."""

from collections.abc import Callable
from typing import Final, Literal

from pallas.model import Notice
from pallas.safe_text import one_line

_MAX_TEXT: Final = 400


class ServerNotices:
    """The servers that are lost, of all instances of ``agent``; each instance has connections of its own."""

    def __init__(self, agent: str) -> None:
        self.tell: Callable[[Notice], None] = lambda _: None
        self._agent = agent
        self._lost: dict[str, int] = {}  # with the number of the failed attempt that was told last

    def lost(self, server: str, why: str) -> None:
        """Note that an instance has lost a server."""
        if server not in self._lost:
            self._lost[server] = 0
            self._publish("warning", server, why)

    def failed(self, server: str, attempt: int, why: str) -> None:
        """Note an attempt of an instance to connect a lost server: the 1st, 2nd, 4th, 8th and so on are told.

        Each instance counts its own.
        """
        if attempt > self._lost.get(server, attempt) and not attempt & (attempt - 1):
            self._lost[server] = attempt
            self._publish("warning", server, f"{why}; attempt {attempt} to connect it has failed")

    def returned(self, server: str, how: str) -> None:
        """Note that every instance has a server."""
        if server in self._lost:
            del self._lost[server]
            self._publish("info", server, how)

    def _publish(self, level: Literal["info", "warning"], server: str, words: str) -> None:
        name = one_line(server, 80)
        text = one_line(f"server {name} {words}", _MAX_TEXT)
        self.tell(Notice(level=level, agent=self._agent, server=name, text=text))
