"""How much of what a server says unasked is taken: a flood must not cost other servers their turns."""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

log = logging.getLogger(__name__)

BURST: Final = 500
"""Messages that nobody asked for which a server may send at once."""
A_SECOND: Final = 200
"""How many it may send a second after that."""
_IN_A_ROW: Final = 50
# After so many beyond the limit the connection is not read for twice the time that they took.
_SHARE: Final = 2
_MOST_REST: Final = 0.25


class FloodLimit:
    """The limit of one connection: notifications and requests beyond it are not taken; answers pass.

    ``changed`` is called where a list is said to have changed in a notification that is dropped.
    """

    def __init__(self, server: str, changed: Callable[[], None]) -> None:
        self._server = server
        self._changed = changed
        self._room = float(BURST)
        self._at = self._began = monotonic()
        self._beyond = 0
        self.dropped = 0
        """How many messages were dropped."""

    async def takes(self, message: Any) -> bool:
        """Return whether a message is taken; where a server floods, that waits so that others get a turn."""
        method = getattr(message, "method", None)
        if method is None or self._has_room():
            return True
        await self._rest()
        if method.endswith("/list_changed"):
            self._changed()
        if not self.dropped:
            log.warning(
                "server %s sends more than %d messages a second; those beyond are dropped",
                self._server,
                A_SECOND,
                extra={"downstream": self._server},
            )
        self.dropped += 1
        return False

    def _has_room(self) -> bool:
        now = monotonic()
        self._room = min(BURST, self._room + (now - self._at) * A_SECOND)
        self._at = now
        if self._room < 1:
            return False
        self._room -= 1
        self._began, self._beyond = now, 0
        return True

    async def _rest(self) -> None:
        self._beyond += 1
        if self._beyond % _IN_A_ROW == 0:
            await asyncio.sleep(min(_MOST_REST, _SHARE * (monotonic() - self._began)))
            self._began = monotonic()
