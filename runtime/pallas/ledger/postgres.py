"""PostgreSQL through asyncpg: a pool of connections; each piece of work is one transaction."""

import asyncio
import ssl
import time
from collections.abc import Callable
from importlib.util import find_spec
from time import monotonic
from typing import Any, Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from .database import (
    DEADLINE,
    MAX_WAITING,
    OPEN_SECONDS,
    Reading,
    Work,
    closed_fault,
    failed,
    to_text,
    too_late,
    too_many,
    unreachable,
)
from .postgres_servers import CONNECT_SECONDS, PostgresServers

POOL: Final = 10
"""Connections of one fleet, in addition to the one that holds its lock."""
AWAY_SECONDS: Final = 60.0
"""Seconds that a fleet which starts waits for a server that is away."""
_AWAY_PAUSE: Final = 1.0
_RETRY_SECONDS: Final = 0.2
# A process that is stopped in a transaction must not hold up those that take over its runs.
_SETTINGS: Final = {"idle_in_transaction_session_timeout": "5s"}
# Serialisation failure, deadlock, unique violation: the database rolled the transaction back, and a retry
# sees what the other transaction wrote.
_AGAIN: Final = ("40001", "40P01", "23505")
_TRIES: Final = 5
# Starting up; no free connection: retry soon.
_NOT_YET: Final = ("57P03", "53300")
# Shutting down, a crash of another session, a broken connection.
_GOING: Final = ("57P01", "57P02", "08000", "08003", "08006")


class PostgresDatabase:
    """One PostgreSQL database. Belongs to the loop that opened it."""

    def __init__(self, dsn: str, shown: str) -> None:
        self.shown = shown
        self._servers = PostgresServers(dsn)
        self._waiting = 0
        self._closed = False
        self._engine = self._new_engine()

    @classmethod
    async def open(
        cls, dsn: str, shown: str, *, tell: Callable[[str], None] | None = None
    ) -> "PostgresDatabase":
        """Open the database of that URL. Raises Fault (CONFIG, TRANSPORT, TIMEOUT).

        With ``tell`` a server that is away is waited for, about ``AWAY_SECONDS`` at most; it gets a line when
        the wait begins, and one when it was not in vain.
        """
        if find_spec("asyncpg") is None:
            raise Fault(
                FaultType.CONFIG,
                f"the database {shown} needs the driver of PostgreSQL; install pallas-mcp[postgresql]",
            )
        opened = cls(dsn, shown)
        try:
            if tell is not None:
                await opened.wait_for_server(tell)
            await opened.write(lambda connection: None, seconds=OPEN_SECONDS)
        except BaseException:
            await opened.close()
            raise
        return opened

    async def wait_for_server(self, tell: Callable[[str], None]) -> None:
        """Wait for a server that is away, as ``open`` does."""
        await _wait_for_server(self._servers, self.shown, tell)

    async def read[T](self, work: Work[T]) -> T:
        return await self._do(work, DEADLINE)

    async def read_again[T](self, work: Work[T], before: Reading[T] | None) -> Reading[T]:
        return Reading(await self.read(work))

    async def write[T](self, work: Work[T], *, seconds: float | None = None) -> T:
        return await self._do(work, seconds or DEADLINE)

    async def close(self) -> None:
        self._closed = True
        await self._engine.dispose()

    async def connect(self, **settings: str) -> Any:
        """A connection of the driver with its own session settings. Raises Fault (TRANSPORT)."""
        import asyncpg  # type: ignore[import-untyped]

        until = monotonic() + DEADLINE
        while True:
            try:
                return await self._servers.connect({"application_name": "pallas", **_SETTINGS, **settings})
            except asyncpg.PostgresError as error:
                if error.sqlstate not in _NOT_YET or monotonic() > until:
                    raise unreachable(self.shown, _reason(error)) from None
                await asyncio.sleep(_RETRY_SECONDS)
            except (OSError, asyncpg.InterfaceError) as error:
                raise unreachable(self.shown, _reason(error)) from None
            except ValueError:  # its text may repeat the URL
                raise unreachable(self.shown, "its URL cannot be read") from None

    async def _do[T](self, work: Work[T], seconds: float) -> T:
        if self._closed:
            raise closed_fault(self.shown)
        if self._waiting >= MAX_WAITING:
            raise too_many(self.shown)
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                for left in range(_TRIES - 1, -1, -1):
                    try:
                        async with self._engine.begin() as connection:
                            return await connection.run_sync(work)
                    except DBAPIError as error:
                        if left == 0 or getattr(error.orig, "sqlstate", None) not in _AGAIN:
                            raise
                raise AssertionError("unreachable")
        except TimeoutError:
            raise too_late(self.shown, seconds) from None
        except SQLAlchemyError as error:
            raise failed(self.shown, error) from None
        except OSError as error:
            raise unreachable(self.shown, _reason(error)) from None
        finally:
            self._waiting -= 1

    def _new_engine(self) -> AsyncEngine:
        return create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self.connect,
            json_serializer=to_text,
            pool_size=POOL,
            max_overflow=0,
            pool_timeout=DEADLINE,
            # Notices a restarted server before work is sent to it.
            pool_pre_ping=True,
        )


async def _wait_for_server(servers: PostgresServers, shown: str, tell: Callable[[str], None]) -> None:
    """Return when the server takes a connection, when waiting cannot help, or when it took too long.

    In the last two cases the next attempt fails, and says why.
    """
    until, has_told = monotonic() + AWAY_SECONDS, False
    while (left := until - monotonic()) > 0:
        try:
            connection = await servers.connect(seconds=min(CONNECT_SECONDS, left))
        except Exception as error:
            if not _is_away(error):
                return
            if not has_told:
                has_told = True
                why = _reason(error)
                at = time.strftime("%H:%M:%S", time.localtime(time.time() + left))
                tell(f"the database {shown} cannot be reached: {why}; waiting for it until {at}")
            await asyncio.sleep(_AWAY_PAUSE)
        else:
            connection.terminate()
            if has_told:
                tell(f"the database {shown} answers again: the fleet starts")
            return


def _reason(error: Exception) -> str:
    return one_line(str(error), 200) or f"no answer within {CONNECT_SECONDS:g} s"


def _is_away(error: Exception) -> bool:
    """Whether the server may take the same connection later."""
    if isinstance(error, OSError):  # TimeoutError is one, too
        return not isinstance(error, ssl.SSLError | PermissionError)
    return getattr(error, "sqlstate", None) in (*_NOT_YET, *_GOING)
