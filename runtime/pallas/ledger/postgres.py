"""PostgreSQL through asyncpg: a pool of connections; each piece of work is one transaction."""

import asyncio
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
    Work,
    closed_fault,
    failed,
    to_text,
    too_late,
    too_many,
    unreachable,
)

POOL: Final = 10
"""Connections of one fleet, in addition to the one that holds its lock."""
CONNECT_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.2
# Serialisation failure, deadlock, unique violation: the database rolled the transaction back, and a retry
# sees what the other transaction wrote.
_AGAIN: Final = ("40001", "40P01", "23505")
_TRIES: Final = 5
# Starting up; no free connection: retry soon.
_NOT_YET: Final = ("57P03", "53300")


class PostgresDatabase:
    """One PostgreSQL database. Belongs to the loop that opened it."""

    def __init__(self, dsn: str, shown: str) -> None:
        self.shown = shown
        self._dsn = dsn
        self._waiting = 0
        self._closed = False
        self._engine = self._new_engine()

    @classmethod
    async def open(cls, dsn: str, shown: str) -> "PostgresDatabase":
        """Open the database of that URL. Raises Fault (CONFIG, TRANSPORT, TIMEOUT)."""
        if find_spec("asyncpg") is None:
            raise Fault(
                FaultType.CONFIG,
                f"the database {shown} needs the driver of PostgreSQL; install pallas-mcp[postgresql]",
            )
        opened = cls(dsn, shown)
        try:
            await opened.write(lambda connection: None, seconds=OPEN_SECONDS)
        except BaseException:
            await opened.close()
            raise
        return opened

    async def read[T](self, work: Work[T]) -> T:
        return await self._do(work, DEADLINE)

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
                return await asyncpg.connect(
                    self._dsn,
                    timeout=CONNECT_SECONDS,
                    server_settings={"application_name": "pallas", **settings},
                )
            except asyncpg.PostgresError as error:
                if error.sqlstate not in _NOT_YET or monotonic() > until:
                    raise self._unreachable(str(error)) from None
                await asyncio.sleep(_RETRY_SECONDS)
            except (OSError, asyncpg.InterfaceError) as error:
                raise self._unreachable(str(error)) from None
            except ValueError:  # its text may repeat the URL
                raise self._unreachable("its URL cannot be read") from None

    def _unreachable(self, why: str) -> Fault:
        reason = one_line(why, 200) or f"no answer within {CONNECT_SECONDS:g} s"
        return unreachable(self.shown, reason)

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
            raise self._unreachable(str(error)) from None
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
