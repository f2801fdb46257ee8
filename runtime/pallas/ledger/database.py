"""The database as the stores see it: they pass functions of a connection that read or write.

A write is one transaction, committed when ``write`` returns; an exception rolls it back. The functions wait
for nothing but the database, so no transaction lasts longer than a few statements (AG-19).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from pallas.model import Fault, FaultType
from pallas.model.codec import dumps
from pallas.safe_text import one_line

log = logging.getLogger(__name__)

DEADLINE: Final = 30.0
"""Default seconds for a piece of work, including its wait for the database."""
OPEN_SECONDS: Final = 20.0
"""The same for the first piece of work, shorter since a person waits for the fleet to start."""
UPGRADE_SECONDS: Final = 3600.0
"""The same for a migration, which may copy tables."""
MAX_WAITING: Final = 10_000
"""Most writes that may wait; more are refused."""

_TELL_EVERY: Final = 10.0
_LATER: Final = "try again later, the log of the fleet has the reason"
_told = ("", -_TELL_EVERY)

type Work[T] = Callable[[Connection], T]


@dataclass(frozen=True, slots=True)
class Reading[T]:
    """What was read of a database, and which state of it that was."""

    value: T
    version: int | None = None
    """Changes with each commit, by whatever process; None where that cannot be seen without reading."""


class Database(Protocol):
    """An open database."""

    @property
    def shown(self) -> str:
        """Its URL without the password."""
        ...

    async def read[T](self, work: Work[T]) -> T:
        """Run ``work``, which only reads. Raises Fault (TRANSPORT, TIMEOUT)."""
        ...

    async def read_again[T](self, work: Work[T], before: Reading[T] | None) -> Reading[T]:
        """Return ``before``, the last reading with ``work``, if nothing was committed since; else read again.

        Raises Fault (TRANSPORT, TIMEOUT).
        """
        ...

    async def write[T](self, work: Work[T], *, seconds: float | None = None) -> T:
        """Run ``work`` and commit; returns its result. Raises Fault (TRANSPORT, TIMEOUT).

        ``seconds`` is its deadline, if not ``DEADLINE``.
        """
        ...

    async def close(self) -> None:
        """Close every connection, after the work under way."""
        ...


def to_text(value: Any) -> str:
    """A plain value as JSON text."""
    return dumps(value).decode()


def insert_new(connection: Connection, table: Table) -> Any:
    """An INSERT with ``on_conflict`` support in the dialect of this database."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


class DatabaseFault(Fault):
    """A Fault of the database: ``message`` is for callers, ``detail`` for operators."""

    def __init__(self, type: FaultType, message: str, detail: str) -> None:  # noqa: A002 - the word of Fault
        super().__init__(type, message)
        self.detail = detail


def in_detail(fault: Fault) -> str:
    """The text of a Fault for operators."""
    return fault.detail if isinstance(fault, DatabaseFault) else fault.message


def closed_fault(shown: str) -> Fault:
    """The Fault for work on a closed database."""
    text = "the database {} is closed: the fleet is stopping"
    return DatabaseFault(FaultType.TRANSPORT, text.format("of the fleet"), text.format(shown))


def too_many(shown: str) -> Fault:
    """The Fault for a write when too many wait already."""
    text = "writes wait for the database {} already: it does not keep up; try again later"
    return _noted(
        FaultType.TRANSPORT,
        f"{MAX_WAITING} {text.format('of the fleet')}",
        f"{MAX_WAITING} {text.format(shown)}",
    )


def too_late(shown: str, seconds: float) -> Fault:
    """The Fault for work that exceeded its deadline."""
    text = f"did not answer within {seconds:g} s; try again later"
    return _noted(FaultType.TIMEOUT, f"the database of the fleet {text}", f"the database {shown} {text}")


def failed(shown: str, error: SQLAlchemyError) -> Fault:
    """The Fault for a database error, without the statement and its values, which contain users' text."""
    reason = one_line(str(error.orig if isinstance(error, DBAPIError) and error.orig else error), 200)
    detail = f"the database {shown} failed: {reason}"
    return _noted(FaultType.TRANSPORT, f"the database of the fleet failed; {_LATER}", detail)


def unreachable(shown: str, reason: str) -> Fault:
    """The Fault for a database server that does not answer."""
    detail = f"the database {shown} cannot be reached: {reason}"
    return _noted(FaultType.TRANSPORT, f"the database of the fleet cannot be reached; {_LATER}", detail)


def _noted(kind: FaultType, message: str, detail: str) -> Fault:
    """The Fault, with its detail in the log, since callers cannot do anything about it."""
    global _told
    if (now := monotonic()) - _told[1] >= _TELL_EVERY or _told[0] != detail:
        _told = detail, now
        log.error("%s", detail)
    return DatabaseFault(kind, message, detail)
