"""How much a ledger holds, by what it is."""

from typing import Any, Final

from sqlalchemy import Connection, exists, func, not_, select, text
from sqlalchemy.sql import ColumnElement, FromClause

from pallas.model import StoragePart

from .blob_store import TEXT, TextRoom
from .database import Database
from .tables import blob_uses, blobs, messages, runs, steps, texts, threads

LAST_TURNS: Final = 100
"""The turns over which the growth of each is the mean."""


class StorageStore:
    """What one ledger holds. Raises Fault (TRANSPORT, TIMEOUT) if the database fails."""

    def __init__(self, database: Database, room: TextRoom) -> None:
        self._database = database
        self._room = room

    async def parts(self) -> list[StoragePart]:
        """The parts of the ledger, the whole first. Reads all lengths: seconds for millions of steps."""
        return await self._database.read(self._read)

    def _read(self, connection: Connection) -> list[StoragePart]:
        kept = select(func.count(), func.sum(texts.c.size), func.sum(texts.c.stored)).where(
            texts.c.lost == ""
        )
        count, size, stored = connection.execute(kept).one()
        shared = select(func.count(), func.sum(func.length(blobs.c.body))).where(blobs.c.scope != TEXT)
        of_steps = select(func.count(), func.sum(_step_length()))
        lost = _count(connection, texts, texts.c.lost != "")
        most = self._room.most_mib * 2**20
        return [
            StoragePart("database", stored=_size(connection)),
            StoragePart("threads", _count(connection, threads)),
            StoragePart("messages", _count(connection, messages)),
            StoragePart("runs", _count(connection, runs)),
            StoragePart("steps", *_sums(connection, of_steps)),
            StoragePart("parts of requests", *_sums(connection, shared)),
            StoragePart("long texts", count, stored=int(stored or 0), size=int(size or 0), limit=most),
            *([StoragePart("long texts left out", lost)] if lost else []),
            _turn(connection),
        ]


def _sums(connection: Connection, query: Any) -> tuple[int, int]:
    count, stored = connection.execute(query).one()
    return count, int(stored or 0)


def _count(connection: Connection, table: FromClause, *where: ColumnElement[bool]) -> int:
    return connection.execute(select(func.count()).select_from(table).where(*where)).scalar_one()


def _size(connection: Connection) -> int:
    """The bytes of the database."""
    if connection.dialect.name == "sqlite":
        query = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    else:
        query = "SELECT pg_database_size(current_database())"
    return int(connection.execute(text(query)).scalar_one())


def _step_length() -> ColumnElement[int]:
    return func.length(steps.c.body) + func.length(steps.c.response)


def _turn(connection: Connection) -> StoragePart:
    """What steps of a turn take that only it has: the mean of the last ones."""
    ended = select(runs.c.id).where(runs.c.status != "running")
    last = connection.execute(ended.order_by(runs.c.started_at.desc(), runs.c.id.desc()).limit(LAST_TURNS))
    ids = list(last.scalars())
    own = select(func.sum(_step_length())).where(steps.c.run_id.in_(ids))
    sent = select(func.sum(func.length(blobs.c.body))).where(blobs.c.run_id.in_(ids))
    uses, others = blob_uses.alias(), blob_uses.alias()
    is_new = exists().where(uses.c.digest == texts.c.digest, uses.c.run_id.in_(ids))
    is_old = exists().where(others.c.digest == texts.c.digest, others.c.run_id.not_in(ids))
    new = select(func.sum(texts.c.stored)).where(is_new, not_(is_old))
    stored = sum(int(connection.execute(each).scalar_one() or 0) for each in (own, sent, new))
    return StoragePart("growth of a turn", len(ids), stored=stored // max(1, len(ids)))
