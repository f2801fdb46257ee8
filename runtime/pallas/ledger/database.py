"""The database as the stores see it: work that reads, work that writes, each a function of a connection.

A write is one transaction, committed when ``write`` returns; what it raises undoes all of it. Work waits for
nothing but the database, so no transaction lasts longer than a few statements (SPEC AG-19).
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pallas.model import Fault, FaultType
from pallas.model.codec import dumps
from pallas.model.safe_text import one_line

log = logging.getLogger(__name__)

DEADLINE: Final = 30.0
"""Seconds that a piece of work may wait for the database and use it, where nothing else is said."""
OPEN_SECONDS: Final = 20.0
"""The same of the first one: whoever starts a fleet wants to know."""
UPGRADE_SECONDS: Final = 3600.0
"""The same of making tables anew, which copies them."""
MAX_WAITING: Final = 10_000
"""Writes that wait at a time; more are refused."""

_TELL_EVERY: Final = 10.0
_LATER: Final = "try again later, the log of the fleet has the reason"
_told = ("", -_TELL_EVERY)

type Work[T] = Callable[[Connection], T]


class Database(Protocol):
    """One database, opened."""

    @property
    def shown(self) -> str:
        """Its URL without the password."""
        ...

    async def read[T](self, work: Work[T]) -> T:
        """What ``work`` finds. Raises Fault (TRANSPORT, TIMEOUT)."""
        ...

    async def write[T](self, work: Work[T], *, seconds: float | None = None) -> T:
        """What ``work`` returns, after all that it wrote was committed. Raises Fault (TRANSPORT, TIMEOUT).

        ``seconds`` is how long it may take, where that is not ``DEADLINE``.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection, after what was under way."""
        ...


def to_text(value: Any) -> str:
    """A plain value as JSON text, whatever is in it."""
    return dumps(value).decode()


def insert_new(connection: Connection, table: Table) -> Any:
    """An INSERT that can say what happens ``on_conflict``, in the words of this database."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


class DatabaseFault(Fault):
    """A Fault of the database: ``message`` is for callers, ``detail`` says what and where, for operators."""

    def __init__(self, type: FaultType, message: str, detail: str) -> None:  # noqa: A002 - the word of Fault
        super().__init__(type, message)
        self.detail = detail


def in_detail(fault: Fault) -> str:
    """What whoever runs the fleet reads of a Fault."""
    return fault.detail if isinstance(fault, DatabaseFault) else fault.message


def over(shown: str) -> Fault:
    """The Fault of work for a database that was closed."""
    text = "the database {} is closed: the fleet is stopping"
    return DatabaseFault(FaultType.TRANSPORT, text.format("of the fleet"), text.format(shown))


def too_many(shown: str) -> Fault:
    """The Fault of a write that finds no room to wait."""
    text = "writes wait for the database {} already: it does not keep up; try again later"
    return _noted(
        FaultType.TRANSPORT,
        f"{MAX_WAITING} {text.format('of the fleet')}",
        f"{MAX_WAITING} {text.format(shown)}",
    )


def too_late(shown: str, seconds: float) -> Fault:
    """The Fault of work that did not come to its end in time."""
    text = f"did not answer within {seconds:g} s; try again later"
    return _noted(FaultType.TIMEOUT, f"the database of the fleet {text}", f"the database {shown} {text}")


def failed(shown: str, error: SQLAlchemyError) -> Fault:
    """The Fault for what the database said: without the statement and its values, which are people's text."""
    reason = one_line(str(error.orig if isinstance(error, DBAPIError) and error.orig else error), 200)
    detail = f"the database {shown} failed: {reason}"
    return _noted(FaultType.TRANSPORT, f"the database of the fleet failed; {_LATER}", detail)


def unreachable(shown: str, reason: str) -> Fault:
    """The Fault for a database server that does not answer."""
    detail = f"the database {shown} cannot be reached: {reason}"
    return _noted(FaultType.TRANSPORT, f"the database of the fleet cannot be reached; {_LATER}", detail)


def _noted(kind: FaultType, message: str, detail: str) -> Fault:
    """The Fault, with its detail in the log: callers are in no place to do anything about it."""
    global _told
    if (now := monotonic()) - _told[1] >= _TELL_EVERY or _told[0] != detail:
        _told = detail, now
        log.error("%s", detail)
    return DatabaseFault(kind, message, detail)
