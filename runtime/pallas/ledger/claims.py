"""Takes over what a dead fleet left: its runs go on elsewhere, or are put into error (AG-6).

A run goes on if it is in a thread and its request was stored. Its attempt rises and it gets a new claim here,
in the thread and in the run, so that its former fleet, if it lives after all, changes nothing any more.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, select, update

from pallas.model import RunRecord
from pallas.model.ids import mint_claim

from .cost_store import paid_in_steps
from .message_rows import run_record
from .question_store import withdraw, withdraw_of
from .spending_store import release_holds
from .tables import PENDING, RUNNING, UNDER_WAY, WITHIN, lives, messages, runs, tasks, threads, waiting
from .task_store import bury_tasks
from .thread_queue import QueuedRun, inherit_queued, waits
from .turn_statements import forget_results

MAX_DEATHS: Final = 3
"""Fleets that may die while they work on one step of a run: one that ends each fleet must not end all of
them.
"""
NOBODY: Final = ""
"""The life of runs that a fleet handed over before it ended."""
ORPHAN_SECONDS: Final = 3600.0
"""Seconds that a run is left alone whose agent the living fleets do not serve."""


class ClaimedRun(NamedTuple):
    """A run that this fleet has to continue, with its new attempt and claim."""

    record: RunRecord
    request: str


class Estate(NamedTuple):
    """What a dead fleet left: the runs to continue, the ids of those put into error, the runs that waited."""

    claimed: tuple[ClaimedRun, ...] = ()
    ended: tuple[str, ...] = ()
    queued: tuple[QueuedRun, ...] = ()


def inherit(
    connection: Connection,
    dead: str,
    mine: str,
    now: float,
    serves: Callable[[str], bool] | None,
    only: Collection[str] | None = None,
) -> Estate:
    """Claim the runs of a dead life, or of ``NOBODY``, for ``mine``, and put the rest into error.

    ``serves`` says whether this fleet answers for an agent; None for a program that continues no runs, and
    leaves those that can be continued. With ``only`` these runs of a life that goes on are claimed.
    """
    claimed: list[ClaimedRun] = []
    left: list[str] = []
    ended: list[str] = []
    is_dead = dead != NOBODY and only is None
    for row in _running(connection, dead):
        if only is not None and row.id not in only:
            continue
        has_got_on = row.next_index is not None and row.next_index > row.reached
        deaths = is_dead if has_got_on else row.deaths + is_dead
        why = _why_not(row, deaths, now, serves)
        if why is None:
            left.append(row.id)
        elif not why and (record := _claim(connection, row, mine, deaths=deaths)) is not None:
            claimed.append(ClaimedRun(record, row.request))
        # One that was handed over and cannot be claimed is another fleet's by now.
        elif (why or dead != NOBODY) and _end(connection, row, now, why if why != _NOT_KEPT else ""):
            ended.append(row.id)
    if claimed:
        of_claimed = tasks.c.run_id.in_([each.record.id for each in claimed])
        connection.execute(update(tasks).where(tasks.c.life == dead, UNDER_WAY, of_claimed).values(life=mine))
    queued: tuple[QueuedRun, ...] = ()
    if serves is not None and only is None:
        queued = inherit_queued(connection, dead, mine, serves, now - ORPHAN_SECONDS)
    if is_dead:
        release_holds(connection, dead)
        withdraw(connection, dead, now)
        bury_tasks(connection, dead, now, f"found {_shown(now)}", but=left)
        # Without its row it would get more time from each fleet that leaves something to others.
        if not left and not waits(connection, dead):
            connection.execute(delete(lives).where(lives.c.id == dead))
    return Estate(tuple(claimed), tuple(ended), queued)


def both(one: Estate, other: Estate) -> Estate:
    """What two dead fleets left."""
    return Estate(one.claimed + other.claimed, one.ended + other.ended, one.queued + other.queued)


def bury(connection: Connection, life: str, now: float) -> None:
    """Put all runs and tasks of a life into error and delete it: its fleet ends, and they end with it."""
    for row in _running(connection, life):
        _end(connection, row, now, "")
    withdraw(connection, life, now)
    bury_tasks(connection, life, now, f"found {_shown(now)}")
    release_holds(connection, life)
    connection.execute(delete(waiting).where(waiting.c.life == life))
    connection.execute(delete(lives).where(lives.c.id == life))


_NOT_KEPT: Final = "what it needs to continue is not stored"


def _why_not(row: Any, deaths: int, now: float, serves: Callable[[str], bool] | None) -> str | None:
    """Why the run of a dead fleet does not go on; empty if it does here, None if it may elsewhere."""
    if row.request is None or row.thread_id is None:
        return _NOT_KEPT
    if serves is None:
        return None
    if not serves(row.agent):
        is_new = now - row.started_at < ORPHAN_SECONDS
        return None if is_new else "no fleet serves its agent any more"
    if deaths >= MAX_DEATHS:
        return f"{deaths} fleets died while they worked on the same step of it"
    return ""


def _running(connection: Connection, life: str) -> Sequence[Any]:
    of_life = select(runs, threads.c.next_index).outerjoin(threads, threads.c.id == runs.c.thread_id)
    return connection.execute(of_life.where(runs.c.life == life, RUNNING)).all()


def _claim(connection: Connection, row: Any, mine: str, *, deaths: int) -> RunRecord | None:
    """Raise the attempt of a run and of its thread, with a new claim; None if the run does not have the
    thread.
    """
    new = {"attempt": row.attempt + 1, "claim": mint_claim()}
    # Not the claim: a fleet of a release without claims leaves that of the run before in the thread.
    held = (threads.c.id == row.thread_id, threads.c.run_id == row.id, threads.c.attempt == row.attempt)
    if not connection.execute(update(threads).where(*held).values(new)).rowcount:
        return None
    values = {**new, "life": mine, "deaths": deaths, "reached": row.next_index}
    connection.execute(update(runs).where(runs.c.id == row.id).values(values))
    return run_record(row, **new)


def hand_over(connection: Connection, run: RunRecord) -> None:
    """Leave a run of a thread, and its task, to the next fleet that looks, unless it is taken over."""
    ours = (runs.c.id == run.id, runs.c.attempt == run.attempt, runs.c.claim == run.claim, RUNNING)
    if connection.execute(update(runs).where(*ours).values(life=NOBODY)).rowcount:
        connection.execute(update(tasks).where(tasks.c.run_id == run.id, UNDER_WAY).values(life=NOBODY))


def hand_over_place(connection: Connection, run_id: str, life: str) -> None:
    """Leave a run of that life that waits for its thread to the next fleet that looks."""
    ours = (waiting.c.run_id == run_id, waiting.c.life == life)
    connection.execute(update(waiting).where(*ours).values(life=NOBODY))


def _end(connection: Connection, run: Any, now: float, why: str) -> bool:
    """Put a run and its pending rows into error, free its thread, and have the runs that it asked for
    cancelled; returns False if it is over. Its claim changes, so that its former fleet adds nothing.
    """
    reason = f"the fleet was stopped in the middle of this turn (found {_shown(now)})"
    reason = f"{reason}; {why}" if why else reason
    same = (runs.c.id == run.id, runs.c.attempt == run.attempt, runs.c.claim == run.claim, RUNNING)
    values = {"status": "error", "fault": reason, "finished_at": now, "claim": mint_claim()}
    over = update(runs).where(*same).values(values)
    if not connection.execute(over.values(paid_in_steps(run.id))).rowcount:
        return False
    connection.execute(
        update(messages).where(PENDING, messages.c.run_id == run.id).values(status="error", reason=reason)
    )
    if run.thread_id is not None:
        held = (threads.c.id == run.thread_id, threads.c.run_id == run.id)
        connection.execute(update(threads).where(*held).values(run_id=""))
    forget_results(connection, run.id)
    withdraw_of(connection, run.id, now)
    asked = (runs.c.within == run.id, WITHIN, RUNNING)
    connection.execute(update(runs).where(*asked).values(cancel=True))
    return True


def _shown(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
