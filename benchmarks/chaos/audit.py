"""Triggers in the ledger's database that write down what changed when, and by whom; and what they wrote.

They belong to the chaos: they are made when the tables are there, and the runtime does not know them.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]

_COLUMNS: Final = {
    "runs": ("id", "thread_id", "attempt", "life", "status"),
    "messages": ("run_id", "thread_id", "turn_index", "role", "tool_call_id"),
    "call_results": ("run_id", "part", "call_id"),
    "lives": ("id", "pid"),
    "waiting": ("run_id", "thread_id", "life"),
}
_CHANGED: Final = ("attempt", "life", "status")
_POSTGRES: Final = """
CREATE SCHEMA chaos;
CREATE TABLE chaos.audit (
    n bigserial PRIMARY KEY, at double precision, who text, what text, op text, body jsonb
);
CREATE FUNCTION chaos.note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE row jsonb := CASE TG_OP WHEN 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END;
BEGIN
    INSERT INTO chaos.audit (at, who, what, op, body)
    SELECT extract(epoch FROM clock_timestamp()), session_user, TG_TABLE_NAME, TG_OP,
           (SELECT jsonb_object_agg(name, row -> name) FROM unnest(string_to_array(TG_ARGV[0], ',')) AS name);
    RETURN NULL;
END $$;
"""
_SQLITE_NOW: Final = "(julianday('now') - 2440587.5) * 86400.0"


@dataclass(frozen=True, slots=True)
class Change:
    """One row that was written: when (Unix seconds), by which user of the database, and its columns."""

    at: float
    who: str
    what: str
    op: str
    row: dict[str, Any]


def _triggers(table: str) -> list[tuple[str, str]]:
    """The operations to note, with their conditions."""
    if table == "runs":
        changed = " OR ".join(f"OLD.{each} <> NEW.{each}" for each in _CHANGED)
        return [("INSERT", ""), ("UPDATE", f"WHEN ({changed})")]
    if table == "waiting":
        return [("INSERT", ""), ("DELETE", "")]
    return [("INSERT", "")]


async def install(url: str) -> None:
    """Make the triggers. ``url`` is that of the ledger."""
    if url.startswith("sqlite"):
        _install_sqlite(_file(url))
        return
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_POSTGRES)
        for table, columns in _COLUMNS.items():
            for op, when in _triggers(table):
                await connection.execute(
                    f"CREATE TRIGGER chaos_{op.lower()} AFTER {op} ON {table} FOR EACH ROW {when} "
                    f"EXECUTE FUNCTION chaos.note('{','.join(columns)}')"
                )
        # Those that began before.
        await connection.execute(
            "INSERT INTO chaos.audit (at, who, what, op, body) "
            "SELECT started_at, '', 'lives', 'INSERT', jsonb_build_object('id', id, 'pid', pid) FROM lives"
        )
    finally:
        await connection.close()


def _install_sqlite(file: Path) -> None:
    with closing(sqlite3.connect(file, timeout=30)) as connection:
        connection.execute(
            "CREATE TABLE chaos_audit "
            "(n INTEGER PRIMARY KEY, at REAL, who TEXT, what TEXT, op TEXT, body TEXT)"
        )
        for table, columns in _COLUMNS.items():
            for op, when in _triggers(table):
                row = "OLD" if op == "DELETE" else "NEW"
                body = ", ".join(f"'{each}', {row}.{each}" for each in columns)
                connection.execute(
                    f"CREATE TRIGGER chaos_{table}_{op.lower()} AFTER {op} ON {table} FOR EACH ROW {when} "
                    f"BEGIN INSERT INTO chaos_audit (at, who, what, op, body) VALUES ({_SQLITE_NOW}, '', "
                    f"'{table}', '{op}', json_object({body})); END"
                )
        connection.execute(
            "INSERT INTO chaos_audit (at, who, what, op, body) "
            "SELECT started_at, '', 'lives', 'INSERT', json_object('id', id, 'pid', pid) FROM lives"
        )
        connection.commit()


async def rows(url: str, query: str) -> list[dict[str, Any]]:
    """What a query finds."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(_file(url), timeout=30)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query)]
    connection = await asyncpg.connect(url)
    try:
        return [dict(row) for row in await connection.fetch(query)]
    finally:
        await connection.close()


def audit_table(url: str) -> str:
    return "chaos_audit" if url.startswith("sqlite") else "chaos.audit"


def _file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))
