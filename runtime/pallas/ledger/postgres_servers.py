"""The servers of a PostgreSQL URL: a new connection goes to the one that takes writes.

A URL names several hosts where a standby may be promoted. They are tried in turn, beginning with the one
that took the last connection, each for its share of the time: a machine that is gone does not even refuse.
"""

from collections.abc import Mapping
from time import monotonic
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from pallas.config.database import urls_of_hosts

CONNECT_SECONDS: Final = 10.0
"""Seconds for a connection, over all servers."""
_LEAST_SECONDS: Final = 0.1
_WANTED: Final = "target_session_attrs"


class PostgresServers:
    """The servers of one URL."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._urls: list[str] = []
        self._good = 0

    async def connect(
        self, settings: Mapping[str, str] | None = None, *, seconds: float = CONNECT_SECONDS
    ) -> Any:
        """A connection of the driver, with these settings of its session.

        Raises what the driver raises, for the last server that was tried: ConnectionError also for one that
        takes no writes, and ValueError if the URL cannot be read.
        """
        import asyncpg  # type: ignore[import-untyped]

        until = monotonic() + seconds
        self._urls = self._urls or urls_of_hosts(self._dsn)
        count, first = len(self._urls), self._good
        passing = (OSError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError)
        last: Exception = ConnectionError("no server")
        for number in range(count):
            place = (first + number) % count
            share = max((until - monotonic()) / (count - number), _LEAST_SECONDS)
            try:
                connection = await self._connect_to(self._urls[place], share, dict(settings or {}))
            except passing as error:
                last = error
            else:
                self._good = place
                return connection
        raise last

    async def _connect_to(self, url: str, seconds: float, settings: dict[str, str]) -> Any:
        import asyncpg

        wanted = dict(parse_qsl(urlsplit(url).query)).get(_WANTED)
        if wanted is None and len(self._urls) > 1:
            wanted = "read-write"
        try:
            return await asyncpg.connect(
                url, timeout=seconds, server_settings=settings, target_session_attrs=wanted
            )
        except asyncpg.exceptions.TargetServerAttributeNotMatched:
            raise ConnectionError(f"no server is {wanted or 'as it must be'} ({_WANTED})") from None
