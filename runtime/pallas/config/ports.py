"""The ports of a project, each given once, and free ones of this machine."""

import socket

from .models import Where
from .notes import Notes


class Ports:
    """The ports of a project, claimed one after the other."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._owners: dict[int, tuple[str, Where]] = {}

    def claim(self, port: int, owner: str, where: Where, key: str) -> None:
        """Take ``port`` for ``owner``; note a mistake that names the owner it has already (PR-8)."""
        if port not in self._owners:
            self._owners[port] = (owner, where)
            return
        other, place = self._owners[port]
        line = f" (line {place.line})" if place.line else " (its default)"
        free = next((near for near in range(port + 1, 65_536) if near not in self._owners), None)
        self._notes.error(
            where,
            key,
            f"port {port} is used twice: {other}{line} has it",
            "allowed: a port that nothing else of this project has" + (f", such as {free}" if free else ""),
        )


def free_port() -> int:
    """A port of loopback that nothing has now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
