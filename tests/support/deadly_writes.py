"""Kills this process at a chosen write to its database: directly before it, or directly after it.

Each INSERT, UPDATE, DELETE and COMMIT counts, of whatever part of Pallas.
"""

import os
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Engine, event
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

PHASES: Final = ("before", "after")
ANY: Final = "*"
_WRITE: Final = re.compile(r'\s*(INSERT INTO|UPDATE|DELETE FROM|COMMIT)\b(?:\s+"?(\w+))?', re.IGNORECASE)


class Instant(NamedTuple):
    """A moment in a life: before or after the ``count``-th write of that name, such as ``UPDATE_runs``.

    The name ``ANY`` is that of each write.
    """

    write: str
    phase: str
    count: int

    def to_text(self) -> str:
        """It as one word of a line."""
        return "/".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> "Instant":
        """The instant of such a word."""
        write, phase, count = text.split("/")
        return cls(write, phase, int(count))


class _Killer:
    def __init__(self, at: Instant, tell: Callable[..., None]) -> None:
        self._at = at
        self._tell = tell
        self._seen: Counter[str] = Counter()

    def note(self, sql: str, phase: str) -> None:
        """Die if this is the moment."""
        if phase != self._at.phase or (found := _WRITE.match(sql)) is None:
            return
        write = "_".join(word for word in (*found[1].upper().split(), found[2]) if word)
        self._seen[write] += 1
        self._seen[ANY] += 1
        if self._at.write in (ANY, write) and self._seen[self._at.write] == self._at.count:
            self._tell("killed", write, phase)
            os.kill(os.getpid(), signal.SIGKILL)


def arm(at: Instant, tell: Callable[..., None]) -> None:
    """Kill this process at that moment; ``tell`` gets ``killed``, the write and the phase before."""
    note = _Killer(at, tell).note

    def around(sql: Any, work: Callable[[], Any]) -> Any:
        note(str(sql), "before")
        done = work()
        note(str(sql), "after")
        return done

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: Any, *given: Any) -> Any:
            return around(sql, partial(super().execute, sql, *given))

        def executemany(self, sql: Any, *given: Any) -> Any:
            return around(sql, partial(super().executemany, sql, *given))

    class Connection(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, sql: Any, *given: Any) -> Any:
            return around(sql, partial(super().execute, sql, *given))

        def executemany(self, sql: Any, *given: Any) -> Any:
            return around(sql, partial(super().executemany, sql, *given))

    vars(sqlite3.dbapi2)["connect"] = partial(sqlite3.dbapi2.connect, factory=Connection)
    _arm_postgresql(note)


def _arm_postgresql(note: Callable[[str, str], None]) -> None:
    def each(phase: str) -> Callable[..., None]:
        def hear(connection: Any, cursor: Any, statement: str, *others: Any) -> None:
            if connection.dialect.name == "postgresql":
                note(statement, phase)

        return hear

    event.listen(Engine, "before_cursor_execute", each("before"))
    event.listen(Engine, "after_cursor_execute", each("after"))
    commit = PGDialect_asyncpg.do_commit

    def do_commit(self: Any, connection: Any) -> None:
        note("COMMIT", "before")
        commit(self, connection)
        note("COMMIT", "after")

    PGDialect_asyncpg.do_commit = do_commit  # type: ignore[method-assign]
