"""Statements that run at every turn. On SQLite they go past SQLAlchemy's work for each execution.

SQLAlchemy compiles them, once, so they are written like all others; its work for one execution takes several
times as long as SQLite's.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Dialect, Executable
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError
from sqlalchemy.sql.compiler import SQLCompiler

_KINDS: Final = ((sqlite3.IntegrityError, IntegrityError), (sqlite3.OperationalError, OperationalError))

type _Convert = Callable[[Any], Any] | None


class _Place(NamedTuple):
    """A parameter in the order of the SQL text."""

    name: str
    default: Any
    is_required: bool
    convert: _Convert


class _Compiled(NamedTuple):
    sql: str
    places: tuple[_Place, ...]

    def parameters(self, values: Mapping[str, Any]) -> list[Any]:
        found: list[Any] = []
        for name, default, is_required, convert in self.places:
            value = values[name] if is_required else values.get(name, default)
            found.append(value if convert is None else convert(value))
        return found


class HotStatement:
    """A statement without lists of parameters. Columns of its rows have the database's own types.

    One that is not the same for all databases is a function, called once for each.
    Every method raises SQLAlchemy's errors, on SQLite without the statement and its values.
    """

    def __init__(self, statement: Executable | Callable[[Connection], Executable]) -> None:
        self._statement = statement
        self._made: dict[str, Executable] = {}
        self._compiled: dict[tuple[str, ...], _Compiled] = {}

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """All rows that it returns."""
        if (raw := driver_of(connection)) is None:
            return [tuple(row) for row in connection.execute(self._for(connection), values)]
        compiled = self._of(connection, values)
        with translated:
            return raw.execute(compiled.sql, compiled.parameters(values)).fetchall()

    def run(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """How many rows it changed."""
        if (raw := driver_of(connection)) is None:
            return int(connection.execute(self._for(connection), values).rowcount)
        compiled = self._of(connection, values)
        with translated:
            return raw.execute(compiled.sql, compiled.parameters(values)).rowcount

    def run_many(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run it for each of ``rows``, at least one, which have the same names."""
        if (raw := driver_of(connection)) is None:
            connection.execute(self._for(connection), rows)
            return
        compiled = self._of(connection, rows[0])
        with translated:
            raw.executemany(compiled.sql, [compiled.parameters(row) for row in rows])

    def _of(self, connection: Connection, values: Mapping[str, Any]) -> _Compiled:
        names = tuple(values)
        found = self._compiled.get(names)
        if found is None:
            found = self._compiled[names] = _compile(self._for(connection), connection.dialect, names)
        return found

    def _for(self, connection: Connection) -> Executable:
        if isinstance(self._statement, Executable):
            return self._statement
        database = connection.dialect.name
        if database not in self._made:
            self._made[database] = self._statement(connection)
        return self._made[database]


def _compile(statement: Any, dialect: Dialect, names: Sequence[str]) -> _Compiled:
    compiled: SQLCompiler = statement.compile(dialect=dialect, column_keys=list(names))
    binds = compiled.binds
    return _Compiled(
        str(compiled),
        tuple(
            _Place(
                name,
                binds[name].effective_value,
                binds[name].required,
                binds[name].type.dialect_impl(dialect).bind_processor(dialect),
            )
            for name in compiled.positiontup or ()
        ),
    )


def driver_of(connection: Connection) -> sqlite3.Connection | None:
    """The connection of SQLite's driver; None for another database."""
    raw: Any = connection.connection.dbapi_connection
    return raw if isinstance(raw, sqlite3.Connection) else None


class _Translated:
    """Raises the driver's errors as SQLAlchemy does. No generator: a turn has a dozen of these blocks."""

    def __enter__(self) -> None: ...

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, sqlite3.Error):
            kind = next((ours for theirs, ours in _KINDS if isinstance(error, theirs)), DatabaseError)
            raise kind(None, None, error) from error


translated: Final = _Translated()
