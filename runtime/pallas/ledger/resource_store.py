"""Agents, LLMs, secrets and projects in the ledger: their rows, and which row refers to which.

A secret's values are sealed before they come here.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, insert, select, text, update

from pallas.model import ResourceKind, refusals

from .database import Database, Reading, insert_new
from .kept import FOLDER_ID, ResourceRow, ResourceRows, used_by
from .message_rows import new_id
from .tables import agents, llms, meta, projects, secrets

_FOLDER_NAME: Final = "."  # not a valid name for others; its real name is in agents.yaml

_TABLES: Final[Mapping[ResourceKind, Table]] = {
    "agent": agents,
    "llm": llms,
    "secret": secrets,
    "project": projects,
}
_MARK: Final = "resources"
"""The key of the mark in ``meta``."""
# Otherwise each statement sees what was committed meanwhile.
_SAME_TIME: Final = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
_OWN: Final = frozenset({"id", "name", "owner", "version", "created_at", "updated_at"})


class ResourceStore:
    """The resources of one ledger. Each method is one transaction."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._mark: Reading[str] | None = None

    async def mark(self) -> str:
        """A text that is another one after each change of any resource, by any fleet.

        One statement, on SQLite none where nothing at all was committed since the last one.
        """
        self._mark = await self._database.read_again(_mark, self._mark)
        return self._mark.value

    async def everything(self) -> ResourceRows:
        """All rows at one time, without agents that are neither declared nor made over the API."""

        def work(connection: Connection) -> ResourceRows:
            if connection.dialect.name == "postgresql":
                connection.execute(_SAME_TIME)
            mark = _mark(connection)
            found = {
                kind: tuple(
                    _kept(kind, row) for row in connection.execute(select(table).order_by(table.c.name))
                )
                for kind, table in _TABLES.items()
            }
            known = tuple(each for each in found["agent"] if each.values["made"] or each.values["declared"])
            return ResourceRows(known, found["llm"], found["secret"], found["project"], mark)

        return await self._database.read(work)

    async def declare_agents(self, names: Mapping[str, str]) -> None:
        """Record which agents files declare now, by name with ``file:line``.

        Rows of others stay, with their threads.
        """
        now = self._clock()

        def work(connection: Connection) -> None:
            known = {row.name: row for row in connection.execute(select(agents))}
            moved = [row for name, row in known.items() if row.declared != names.get(name, "")]
            for row in moved:
                where = agents.c.id == row.id
                connection.execute(update(agents).where(where).values(declared=names.get(row.name, "")))
            new = [
                {"id": new_id(), "name": name, "declared": place, "created_at": now, "updated_at": now}
                for name, place in names.items()
                if name not in known
            ]
            if new:
                connection.execute(insert(agents), new)
            if new or moved:
                _change_mark(connection)

        await self._database.write(work)

    async def have_folder(self) -> None:
        """Create the row of the folder's own project, so that agents can refer to it."""
        now = self._clock()

        def work(connection: Connection) -> None:
            if connection.execute(select(projects.c.id).where(projects.c.id == FOLDER_ID)).first() is None:
                row = {"id": FOLDER_ID, "name": _FOLDER_NAME, "created_at": now, "updated_at": now}
                connection.execute(insert(projects).values(row))
                _change_mark(connection)

        await self._database.write(work)

    async def insert(
        self, kind: ResourceKind, key: str, name: str, values: Mapping[str, Any], owner: str
    ) -> ResourceRow:
        """Create a row.

        The row of an agent that is neither made nor declared becomes this one, with its threads.

        Raises Fault (conflict) if the name is taken.
        """
        table, now = _TABLES[kind], self._clock()
        row = {**values, "owner": owner, "version": 1, "created_at": now, "updated_at": now}

        def work(connection: Connection) -> ResourceRow:
            there = connection.execute(select(table).where(table.c.name == name)).first()
            if there is None:
                connection.execute(insert(table).values(id=key, name=name, **row))
            elif kind != "agent" or there.made or there.declared:
                raise refusals.conflict(f"{kind} {name} exists already; change it, or choose another name")
            else:
                connection.execute(update(table).where(table.c.id == there.id).values(**row))
            _change_mark(connection)
            return _one(connection, kind, key if there is None else there.id)

        return await self._database.write(work)

    async def update(
        self, kind: ResourceKind, key: str, values: Mapping[str, Any], *, version: int | None = None
    ) -> ResourceRow:
        """Change some columns; the version grows.

        Raises Fault: not_found if it is gone, conflict if it has another ``version``.
        """
        table, now = _TABLES[kind], self._clock()

        def work(connection: Connection) -> ResourceRow:
            change = {**values, "version": table.c.version + 1, "updated_at": now}
            done = connection.execute(update(table).where(*_of(table, key, version)).values(change))
            found = _one(connection, kind, key)
            if not done.rowcount:
                raise refusals.stale(kind, found.name, found.version)
            _change_mark(connection)
            return found

        return await self._database.write(work)

    async def reseal(self, sealed: Mapping[str, bytes]) -> None:
        """Replace sealed secrets by id, after a change of the key. Versions and times stay."""

        def work(connection: Connection) -> None:
            for key, value in sealed.items():
                connection.execute(update(secrets).where(secrets.c.id == key).values(sealed=value))
            _change_mark(connection)

        if sealed:
            await self._database.write(work)

    async def delete(self, kind: ResourceKind, key: str, *, version: int | None = None) -> None:
        """Delete a row. Agents of a project lose their project; an agent's threads and messages go with it.

        Raises Fault: in_use with the names of its users (agents of an LLM, LLMs of a secret), conflict if it
        has another ``version``.
        """
        table = _TABLES[kind]

        def work(connection: Connection) -> None:
            users: Sequence[str] = ()
            if kind == "llm":
                users = _names(connection, agents, agents.c.llm_id == key)
            elif kind == "secret":
                users = _names(connection, llms, llms.c.secret_id == key)
            elif kind == "project":
                connection.execute(update(agents).where(agents.c.project_id == key).values(project_id=None))
            if users:
                raise used_by(
                    kind, _one(connection, kind, key).name, "agent" if kind == "llm" else "llm", users
                )
            gone = connection.execute(delete(table).where(*_of(table, key, version)))
            if version is not None and not gone.rowcount:
                found = _one(connection, kind, key)
                raise refusals.stale(kind, found.name, found.version)
            _change_mark(connection)

        await self._database.write(work)


def _mark(connection: Connection) -> str:
    found = connection.execute(select(meta.c.value).where(meta.c.key == _MARK)).scalar_one_or_none()
    return found or ""


def _change_mark(connection: Connection) -> None:
    """Let other fleets see that something changed. Call it last: others wait for the row until the commit."""
    row = insert_new(connection, meta).values(key=_MARK, value=token_hex(8))
    connection.execute(
        row.on_conflict_do_update(index_elements=[meta.c.key], set_={"value": row.excluded.value})
    )


def _of(table: Table, key: str, version: int | None) -> list[ColumnElement[bool]]:
    """Conditions for the row of that id and version."""
    return [table.c.id == key, *([table.c.version == version] if version is not None else [])]


def _names(connection: Connection, table: Table, where: Any) -> list[str]:
    return [row.name for row in connection.execute(select(table.c.name).where(where).order_by(table.c.name))]


def _one(connection: Connection, kind: ResourceKind, key: str) -> ResourceRow:
    table = _TABLES[kind]
    row = connection.execute(select(table).where(table.c.id == key)).first()
    if row is None:
        raise refusals.not_found(f"there is no such {kind} any more")
    return _kept(kind, row)


def _kept(kind: ResourceKind, row: Row[Any]) -> ResourceRow:
    values = {key: value for key, value in row._mapping.items() if key not in _OWN}
    return ResourceRow(kind, row.id, row.name, values, row.owner, row.version, row.created_at, row.updated_at)
