"""What the runs of a ledger cost: that of runs with those below them, and sums."""

from collections.abc import Mapping, Sequence
from itertools import batched
from typing import Any, Final

from sqlalchemy import Connection, Select, func, select
from sqlalchemy.sql import ColumnElement

from pallas.model import Cost, CostsBy, CostSum

from .database import Database
from .tables import CAUSED, runs, steps

MAX_SUMS: Final = 1_000
"""Most sums that are returned, the dearest first; the rest is one sum."""
_AT_ONCE: Final = 500
"""Values in one condition."""
_DAY: Final = 86_400.0
"""Seconds before the time that is asked about in which the first run of a tree may have begun."""
_SUMS: Final = (
    func.sum(runs.c.cost).label("cost"),
    func.sum(runs.c.unpriced).label("unpriced"),
    func.count().label("runs"),
    func.sum(runs.c.tokens_in).label("tokens_in"),
    func.sum(runs.c.tokens_out).label("tokens_out"),
)


class CostStore:
    """The costs in one ledger. Raises Fault (TRANSPORT, TIMEOUT) if the database fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def below(self, run_ids: Sequence[str]) -> Mapping[str, Mapping[str, Cost]]:
        """For each of these runs the runs below it, by id, with what each of them cost by itself."""

        def work(connection: Connection) -> dict[str, dict[str, Cost]]:
            found: dict[str, dict[str, Cost]] = {}
            for some in batched(run_ids, _AT_ONCE, strict=False):
                for row in connection.execute(_below(some)):
                    found.setdefault(row.root, {})[row.id] = Cost(row.cost, row.unpriced)
            return found

        return await self._database.read(work)

    async def of_threads(self, threads: Sequence[str]) -> Mapping[str, Cost]:
        """What the runs of these threads cost, with those below them. A thread without runs is left out."""

        def work(connection: Connection) -> dict[str, Cost]:
            found: dict[str, Cost] = {}
            for some in batched(threads, _AT_ONCE, strict=False):
                own = select(runs.c.thread_id.label("root"), runs.c.id, runs.c.cost, runs.c.unpriced)
                # Of a run in the thread that is below another one of it, there is one row.
                for row in connection.execute(_with_those_below(own.where(runs.c.thread_id.in_(some)))):
                    found[row.root] = found.get(row.root, Cost()) + Cost(row.cost, row.unpriced)
            return found

        return await self._database.read(work)

    async def sums(self, by: CostsBy, *, since: float = 0.0, owner: str | None = None) -> Sequence[CostSum]:
        """What the runs cost that began at ``since`` or later and are over, the dearest first.

        ``owner`` is a principal whose runs are meant alone. The sums together are those of all these runs.
        """
        of = [runs.c.started_at >= since, runs.c.status != "running"]
        if owner is not None:
            of.append(runs.c.owner == owner)

        def work(connection: Connection) -> list[CostSum]:
            rows = connection.execute(_of_models(of) if by == "model" else _of_runs(by, of, since)).all()
            whole = _sum("", connection.execute(select(*_SUMS).where(*of)).one())
            found = sorted((_sum(row.key, row) for row in rows), key=_dearest)[:MAX_SUMS]
            return [*found, *_rest(whole, found, counts=by != "model")]

        return await self._database.read(work)


def paid_in_steps(run_id: str) -> Mapping[str, Any]:
    """The columns of a run whose fleet is gone, from its stored steps."""
    of = steps.c.run_id == run_id
    return {
        "cost": select(func.sum(steps.c.cost)).where(of).scalar_subquery(),
        "unpriced": select(func.coalesce(func.sum(steps.c.unpriced), 0)).where(of).scalar_subquery(),
    }


def _below(run_ids: Sequence[str]) -> Select[Any]:
    own = select(runs.c.caused_by.label("root"), runs.c.id, runs.c.cost, runs.c.unpriced)
    return _with_those_below(own.where(runs.c.caused_by.in_(run_ids), CAUSED))


def _with_those_below(first: Select[Any]) -> Select[Any]:
    """These runs with all below them, each once for its ``root``."""
    tree = first.cte("tree", recursive=True)
    more = select(tree.c.root, runs.c.id, runs.c.cost, runs.c.unpriced)
    tree = tree.union(more.join(tree, runs.c.caused_by == tree.c.id).where(CAUSED))
    return select(tree)


def _of_runs(by: CostsBy, of: Sequence[ColumnElement[bool]], since: float) -> Select[Any]:
    match by:
        case "agent":
            keys: tuple[Any, ...] = (runs.c.agent,)
        case "caller":
            keys = (runs.c.owner,)
        case "version":
            keys = (runs.c.agent, runs.c.version)
        case _:
            return _of_threads(of, since)
    key = keys[0] if len(keys) == 1 else keys[0] + "@" + keys[1]
    return select(key.label("key"), *_SUMS).where(*of).group_by(*keys)


def _of_threads(of: Sequence[ColumnElement[bool]], since: float) -> Select[Any]:
    """Runs below others are paid for with the thread of the first one."""
    first = select(runs.c.id, func.coalesce(runs.c.thread_id, "").label("thread")).where(
        ~CAUSED, runs.c.started_at >= since - _DAY
    )
    tree = first.cte("tree", recursive=True)
    more = select(runs.c.id, tree.c.thread).join(tree, runs.c.caused_by == tree.c.id).where(CAUSED)
    tree = tree.union(more)
    joined = select(tree.c.thread.label("key"), *_SUMS).join(runs, runs.c.id == tree.c.id)
    return joined.where(*of, tree.c.thread != "").group_by(tree.c.thread)


def _of_models(of: Sequence[ColumnElement[bool]]) -> Select[Any]:
    columns = (
        func.sum(steps.c.cost).label("cost"),
        func.sum(steps.c.unpriced).label("unpriced"),
        func.count(steps.c.run_id.distinct()).label("runs"),
    )
    of_models = select(steps.c.name.label("key"), *columns).join(runs, runs.c.id == steps.c.run_id)
    return of_models.where(*of, steps.c.kind == "model").group_by(steps.c.name)


def _sum(key: str, row: Any) -> CostSum:
    def number(name: str) -> int | None:
        value = getattr(row, name, None)
        return None if value is None else int(value)  # PostgreSQL adds to a Decimal

    return CostSum(
        key,
        number("cost"),
        number("unpriced") or 0,
        number("runs") or 0,
        number("tokens_in"),
        number("tokens_out"),
    )


def _dearest(item: CostSum) -> tuple[int, int, str]:
    return -(item.cost or 0), -item.runs, item.key


def _rest(whole: CostSum, found: Sequence[CostSum], *, counts: bool) -> list[CostSum]:
    """What is in none of the sums that were found: nothing, or one sum without a key."""
    in_sums = Cost.sum(found)
    left = Cost.of(whole).since(in_sums)
    missing = whole.runs - sum(each.runs for each in found) if counts else 0
    if not missing and not left.unpriced and not left.cost:
        return []
    return [CostSum("", left.cost, left.unpriced, missing)]
