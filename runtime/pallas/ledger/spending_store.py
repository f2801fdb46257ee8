"""What callers and agents spend in a day: one account for all replicas on the ledger.

A reservation locks its account's row and decides there, so replicas never admit together what one of them
would not. What a fleet has reserved is stored with it, by its life, and released when it is dead.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, delete, select, update

from pallas.limits.account import DAY_S, DayAccount, Estimate, Verdict, verdict_of
from pallas.model import Fault
from pallas.model.spend_limits import ANY, NOTHING, Amount

from .database import Database, in_detail, insert_new
from .tables import spending, spending_holds

log = logging.getLogger(__name__)

KEEP_DAYS: Final = 62
"""Days for which it is known what was spent."""
MAX_LISTED: Final = 10_000
MAX_OWED: Final = 10_000
"""Accounts for which it is remembered what could not be written."""
TRIES: Final = 3
"""How often it is tried to write what a question used."""
PAUSE_S: Final = 0.5
CLOSE_SECONDS: Final = 2.0


class _Settlement(NamedTuple):
    """What questions had reserved, what they used, and how many they are."""

    most: Amount
    used: Amount
    calls: int = 1

    def with_more(self, other: "_Settlement") -> "_Settlement":
        return _Settlement(self.most + other.most, self.used + other.used, self.calls + other.calls)


_NONE: Final = _Settlement(NOTHING, NOTHING, 0)


class SpendingStore:
    """The accounts of days on one ledger, as ``DayLedger``; ``life`` is that of the fleet that reserves."""

    def __init__(self, database: Database, life: str) -> None:
        self._database = database
        self._life = life
        # What is still to be written, by account: it is read and reserved only after that.
        self._writing: dict[asyncio.Task[None], tuple[str, str]] = {}
        # What could not be written, by account: it is written with what follows.
        self._owed: dict[tuple[str, str], _Settlement] = {}

    async def reserve(self, account: DayAccount, asked: Estimate) -> Verdict:
        """As ``DayLedger``. Raises Fault (TRANSPORT, TIMEOUT)."""
        await self._written(account)
        work = partial(_reserve, account=account, asked=asked, life=self._life)
        writing = asyncio.ensure_future(self._database.write(work))
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._start(account, self._undo(writing, account, asked))
            raise

    def settle(self, account: DayAccount, most: Amount, used: Amount) -> None:
        """As ``DayLedger``."""
        self._start(account, self._settle(account, _Settlement(most, used)))

    async def read(self, account: DayAccount) -> None:
        """As ``DayLedger``. Raises Fault (TRANSPORT, TIMEOUT)."""
        await self._written(account)
        await self._database.read(lambda connection: _fill(account, _row(connection, account)))

    async def list(self, day: str) -> Sequence[DayAccount]:
        """As ``DayLedger``; at most ``MAX_LISTED``. Raises Fault (TRANSPORT, TIMEOUT)."""

        def work(connection: Connection) -> list[DayAccount]:
            wanted = select(spending).where(spending.c.day == day).order_by(spending.c.scope)
            found = []
            for row in connection.execute(wanted.limit(MAX_LISTED)):
                found.append(DayAccount(row.scope, day, ANY))
                _fill(found[-1], row)
            return found

        self._start_owed()
        if self._writing:
            await asyncio.wait(tuple(self._writing))
        return await self._database.read(work)

    async def close(self) -> None:
        """Write what is still to be written, within ``CLOSE_SECONDS``."""
        self._start_owed()
        if self._writing:
            _, late = await asyncio.wait(tuple(self._writing), timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
            if late:
                log.warning("what %d questions to models used was not written down in time", len(late))

    def _start_owed(self) -> None:
        for scope, day in tuple(self._owed):
            account = DayAccount(scope, day, ANY)
            self._start(account, self._settle(account, _NONE))

    def _start(self, account: DayAccount, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work, name=f"settle {account.scope}")
        self._writing[task] = (account.scope, account.day)
        task.add_done_callback(self._writing.pop)

    async def _written(self, account: DayAccount) -> None:
        key = account.scope, account.day
        if key in self._owed and key not in self._writing.values():
            self._start(account, self._settle(account, _NONE))
        if own := [task for task, of in self._writing.items() if of == key]:
            await asyncio.wait(own)

    async def _undo(self, writing: asyncio.Future[Verdict], account: DayAccount, asked: Estimate) -> None:
        """Release what was reserved for a question that was cancelled meanwhile."""
        await asyncio.wait({writing})
        if not writing.cancelled() and writing.exception() is None and writing.result().what == "admit":
            await self._settle(account, _Settlement(asked.most, NOTHING))

    async def _settle(self, account: DayAccount, made: _Settlement) -> None:
        """Write a settlement, with those of its account that could not be written before."""
        key = account.scope, account.day
        made = made.with_more(self._owed.pop(key, _NONE))
        work = partial(_settle, account=account, made=made, life=self._life)
        for left in reversed(range(TRIES)):
            try:
                await self._database.write(work)
                return
            except Fault as fault:
                if not left:
                    self._owe(key, made, fault)
                    return
            await asyncio.sleep(PAUSE_S)

    def _owe(self, key: tuple[str, str], made: _Settlement, fault: Fault) -> None:
        what = f"{made.used.tokens} tokens of {key[0]}"
        log.error("the use of %s could not be stored yet: %s", what, in_detail(fault))
        if key in self._owed or len(self._owed) < MAX_OWED:
            self._owed[key] = made.with_more(self._owed.get(key, _NONE))


def release_holds(connection: Connection, life: str) -> None:
    """Release what a fleet has reserved that is dead or ends."""
    for hold in connection.execute(select(spending_holds).where(spending_holds.c.life == life)).all():
        here = (spending.c.day == hold.day, spending.c.scope == hold.scope)
        connection.execute(update(spending).where(*here).values(_held(-hold.usd, -hold.tokens, -hold.calls)))
    connection.execute(delete(spending_holds).where(spending_holds.c.life == life))


def forget_spending(connection: Connection, now: float) -> None:
    """Delete the accounts of days that are long over."""
    oldest = datetime.fromtimestamp(now - KEEP_DAYS * DAY_S, UTC).date().isoformat()
    for table in (spending, spending_holds):
        connection.execute(delete(table).where(table.c.day < oldest))


def _reserve(connection: Connection, *, account: DayAccount, asked: Estimate, life: str) -> Verdict:
    key = {"day": account.day, "scope": account.scope}
    new = insert_new(connection, spending).values(key)
    connection.execute(new.on_conflict_do_nothing())
    _fill(account, _row(connection, account, lock=True))
    verdict = verdict_of(account.limits, account.used, account.held, account.open_calls, asked)
    if verdict.what != "admit":
        return verdict
    most = asked.most
    connection.execute(update(spending).where(*_here(account)).values(_held(most.usd, most.tokens, 1)))
    hold = insert_new(connection, spending_holds)
    held = {
        "usd": spending_holds.c.usd + most.usd,
        "tokens": spending_holds.c.tokens + most.tokens,
        "calls": spending_holds.c.calls + 1,
    }
    index = [spending_holds.c.life, spending_holds.c.day, spending_holds.c.scope]
    values = {"life": life, **key, "usd": most.usd, "tokens": most.tokens, "calls": 1}
    connection.execute(hold.values(values).on_conflict_do_update(index_elements=index, set_=held))
    return verdict


def _settle(connection: Connection, *, account: DayAccount, made: _Settlement, life: str) -> None:
    """Count what was used, and release the reservations unless another fleet did so already."""
    most, used, calls = made
    _row(connection, account, lock=True)
    hold = (
        spending_holds.c.life == life,
        spending_holds.c.day == account.day,
        spending_holds.c.scope == account.scope,
        spending_holds.c.calls >= max(calls, 1),
    )
    released = {
        "usd": spending_holds.c.usd - most.usd,
        "tokens": spending_holds.c.tokens - most.tokens,
        "calls": spending_holds.c.calls - calls,
    }
    values: dict[str, Any] = {"usd": spending.c.usd + used.usd, "tokens": spending.c.tokens + used.tokens}
    if connection.execute(update(spending_holds).where(*hold).values(released)).rowcount:
        values |= _held(-most.usd, -most.tokens, -calls)
    connection.execute(update(spending).where(*_here(account)).values(values))


def _held(usd: int, tokens: int, calls: int) -> dict[str, Any]:
    return {
        "held_usd": spending.c.held_usd + usd,
        "held_tokens": spending.c.held_tokens + tokens,
        "open_calls": spending.c.open_calls + calls,
    }


def _here(account: DayAccount) -> tuple[Any, ...]:
    return spending.c.day == account.day, spending.c.scope == account.scope


def _row(connection: Connection, account: DayAccount, *, lock: bool = False) -> Any:
    wanted = select(spending).where(*_here(account))
    return connection.execute(wanted.with_for_update() if lock else wanted).first()


def _fill(account: DayAccount, row: Any) -> None:
    if row is not None:
        account.used = Amount(row.usd, row.tokens)
        account.held = Amount(row.held_usd, row.held_tokens)
        account.open_calls = row.open_calls
