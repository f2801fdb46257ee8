"""What is not kept for ever: events of runs, and runs of which nothing is remembered; threads always are."""

from typing import Final

from sqlalchemy import Connection, delete, insert, select, tuple_, update

from .tables import meta, run_events, runs

KEEP_SECONDS: Final = 14 * 24 * 3600.0
"""How long they are kept after the run began."""
AT_ONCE: Final = 1_000
"""Runs that one transaction looks at, so that no writer waits long for it."""
_MARK: Final = "pruned_until"


def prune(connection: Connection, now: float, keep: float = KEEP_SECONDS, limit: int = AT_ONCE) -> bool:
    """Forget what is older than ``keep`` seconds, ``limit`` runs at most; whether there may be more.

    How far that has come is kept, so that runs which stay are looked at once.
    """
    mark = connection.execute(select(meta.c.value).where(meta.c.key == _MARK)).scalar_one_or_none()
    at, _, last = (mark or "0:").partition(":")
    old = (
        select(runs.c.id, runs.c.started_at, runs.c.thread_id)
        .where(
            tuple_(runs.c.started_at, runs.c.id) > tuple_(float(at), last),
            runs.c.started_at < now - keep,
            runs.c.status != "running",
        )
        .order_by(runs.c.started_at, runs.c.id)
        .limit(limit)
    )
    found = connection.execute(old).all()
    if not found:
        return False
    connection.execute(delete(run_events).where(run_events.c.run_id.in_([row.id for row in found])))
    loose = [row.id for row in found if row.thread_id is None]
    connection.execute(delete(runs).where(runs.c.id.in_(loose)))
    value = f"{found[-1].started_at!r}:{found[-1].id}"
    if mark is None:
        connection.execute(insert(meta), [{"key": _MARK, "value": value}])
    else:
        connection.execute(update(meta).where(meta.c.key == _MARK).values(value=value))
    return len(found) == limit
