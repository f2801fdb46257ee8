"""Runs that wait for a thread that another run has: in order of arrival, over all fleets of a database."""

from collections.abc import Callable
from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from pallas.model import refusals

from .tables import waiting

MAX_WAITING: Final = 100
"""Runs that may wait for one thread."""
FIRST: Final = 2**62
"""The position of a run that does not wait: only if no other waits it may begin."""


class QueuedRun(NamedTuple):
    """A run that waited in a fleet that died: its id, its position, and its request as JSON."""

    run_id: str
    position: int
    request: str


def join(
    connection: Connection, thread: str, run_id: str, *, agent: str, life: str, request: str, now: float
) -> int:
    """Add a run at the end; returns its position. Raises Fault (busy) if too many wait."""
    of_thread = select(func.count()).select_from(waiting).where(waiting.c.thread_id == thread)
    if connection.execute(of_thread).scalar_one() >= MAX_WAITING:
        raise refusals.queue_full(MAX_WAITING)
    values = {
        "thread_id": thread,
        "run_id": run_id,
        "agent": agent,
        "life": life,
        "request": request,
        "created_at": now,
    }
    return int(connection.execute(insert(waiting).values(values).returning(waiting.c.position)).scalar_one())


def leave(connection: Connection, run_id: str, life: str | None = None) -> None:
    """Remove a run: it begins, or its caller, of the fleet with that ``life``, is gone."""
    ours = () if life is None else (waiting.c.life == life,)
    connection.execute(delete(waiting).where(waiting.c.run_id == run_id, *ours))


def waits(connection: Connection, life: str) -> bool:
    """Whether a run of that life waits."""
    of_life = select(waiting.c.run_id).where(waiting.c.life == life).limit(1)
    return connection.execute(of_life).first() is not None


def inherit_queued(
    connection: Connection, dead: str, mine: str, serves: Callable[[str], bool], oldest: float
) -> tuple[QueuedRun, ...]:
    """Take over the waiting runs of a dead life whose thread's agent this fleet serves, in order.

    Those that it does not serve are left to others, or removed if they have waited since before ``oldest``.
    """
    rows = connection.execute(
        select(waiting.c.run_id, waiting.c.position, waiting.c.request, waiting.c.agent, waiting.c.created_at)
        .where(waiting.c.life == dead)
        .order_by(waiting.c.position)
    ).all()
    for row in rows:
        if row.created_at < oldest and not serves(row.agent):
            connection.execute(delete(waiting).where(waiting.c.position == row.position))
    found = [row for row in rows if serves(row.agent)]
    for row in found:
        connection.execute(update(waiting).where(waiting.c.position == row.position).values(life=mine))
    return tuple(QueuedRun(row.run_id, row.position, row.request) for row in found)
