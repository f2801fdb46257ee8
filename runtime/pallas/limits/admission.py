"""Admits questions to models: all accounts of a question reserve what it may use, or none does."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from time import time
from typing import Final, Protocol

from pallas.model.spend_limits import NOTHING, Amount

from .account import Account, DayAccount, Estimate, Verdict
from .limit_reached import LimitReached, limit_reached

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5
"""Seconds between two looks whether questions of other replicas have ended."""


class DayLedger(Protocol):
    """The accounts of days that replicas share. Raises Fault where they cannot be reached."""

    async def reserve(self, account: DayAccount, asked: Estimate) -> Verdict:
        """Reserve what a question may use, in one step for all replicas; if it does not, reads ``account``.

        If it is cancelled, nothing stays reserved.
        """
        ...

    def settle(self, account: DayAccount, most: Amount, used: Amount) -> None:
        """Replace a reservation by what was used. Returns at once."""
        ...

    async def read(self, account: DayAccount) -> None:
        """Read what was used of an account, and what is reserved."""
        ...

    async def list(self, day: str) -> Sequence[DayAccount]:
        """The accounts of a day, without their limits."""
        ...


class Hold:
    """A reservation of one question in all of its accounts. ``settle`` it once, in every case."""

    __slots__ = ("_is_open", "_release", "asked")

    def __init__(self, asked: Estimate, release: Callable[[Amount], None]) -> None:
        self.asked = asked
        self._release = release
        self._is_open = True

    def settle(self, used: Amount) -> None:
        """Count what the question used; only the first call counts."""
        if self._is_open:
            self._is_open = False
            self._release(used)


class _Waiting:
    """A question that waits for others to end."""

    __slots__ = ("accounts", "admitted", "asked")

    def __init__(self, accounts: Sequence[Account], asked: Estimate) -> None:
        self.accounts = accounts
        self.asked = asked
        self.admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Admission:
    """Reserves in the accounts of one fleet, first come, first served. One event loop only.

    ``ledger`` has the accounts of days that replicas share; it may be set before the first question.
    """

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self.ledger: DayLedger | None = None
        self._clock = clock
        self._waiting: list[_Waiting] = []
        # The questions that wait for others at an account in the ledger, the oldest first.
        self._queues: dict[tuple[str, str], list[int]] = {}
        self._numbers = count(1)

    @property
    def waiting(self) -> int:
        """How many questions wait for others to end."""
        return len(self._waiting)

    @property
    def queued(self) -> int:
        """How many questions were seen to wait at an account in the ledger."""
        return len({number for queue in self._queues.values() for number in queue})

    async def reserve(
        self, accounts: Sequence[Account], asked: Estimate, shared: Sequence[DayAccount] = ()
    ) -> Hold:
        """Reserve in all accounts; waits while questions that are open may leave too little room.

        ``shared`` are accounts in the ledger. Raises LimitReached, and Fault if the ledger fails.
        """
        pause, number = FIRST_PAUSE_S, next(self._numbers)
        try:
            while True:
                if not self._is_behind(number, shared):
                    await self._reserve_here(accounts, asked)
                    try:
                        full = await self._reserve_shared(shared, asked)
                    except BaseException:
                        self._release(accounts, asked)
                        raise
                    if full is None:
                        return Hold(asked, lambda used: self._settle(accounts, shared, asked, used))
                    self._release(accounts, asked)
                    self._queue(number, full)
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
        finally:
            self._unqueue(number, shared)

    def _is_behind(self, number: int, shared: Sequence[DayAccount]) -> bool:
        """Whether an older question waits at one of these accounts: none overtakes another of its fleet.

        The oldest is behind none, so they do not wait for each other.
        """
        queues = (self._queues.get((each.scope, each.day), ()) for each in shared)
        return any(queue and min(queue) < number for queue in queues)

    def _queue(self, number: int, account: DayAccount) -> None:
        queue = self._queues.setdefault((account.scope, account.day), [])
        if number not in queue:
            queue.append(number)

    def _unqueue(self, number: int, shared: Sequence[DayAccount]) -> None:
        for account in shared:
            key = account.scope, account.day
            queue = self._queues.get(key, [])
            if number in queue:
                queue.remove(number)
                if not queue:
                    del self._queues[key]

    async def _reserve_here(self, accounts: Sequence[Account], asked: Estimate) -> None:
        waiting = _Waiting(accounts, asked)
        self._waiting.append(waiting)
        self._admit()
        try:
            await waiting.admitted
        except asyncio.CancelledError:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._admit()
            elif not waiting.admitted.cancelled() and waiting.admitted.exception() is None:
                self._release(accounts, asked)  # it was admitted in the same moment
            raise

    async def _reserve_shared(self, shared: Sequence[DayAccount], asked: Estimate) -> DayAccount | None:
        """Reserve in all accounts in the ledger; returns the one that has no room now, and then none has."""
        assert self.ledger is not None or not shared
        held: list[DayAccount] = []
        is_reserved = False
        try:
            for account in shared:  # in one order for all fleets
                assert self.ledger is not None
                verdict = await self.ledger.reserve(account, asked)
                if verdict.what == "refuse":
                    raise self._refusal(account, verdict, asked)
                if verdict.what == "wait":
                    return account
                held.append(account)
            is_reserved = True
            return None
        finally:
            if not is_reserved and self.ledger is not None:
                for account in held:
                    self.ledger.settle(account, asked.most, NOTHING)

    def _admit(self) -> None:
        """Admit or refuse those that wait, the oldest first; none overtakes another at an account."""
        blocked: set[int] = set()
        left = []
        for each in self._waiting:
            verdicts = [(account, account.verdict(each.asked)) for account in each.accounts]
            refused = next(((a, v) for a, v in verdicts if v.what == "refuse"), None)
            if each.admitted.done():
                continue
            if refused is not None:
                each.admitted.set_exception(self._refusal(*refused, each.asked))
                continue
            full = [account for account, verdict in verdicts if verdict.what == "wait"]
            if full or any(id(account) in blocked for account in each.accounts):
                blocked.update(map(id, full))
                left.append(each)
                continue
            for account in each.accounts:
                account.hold(each.asked.most)
            each.admitted.set_result(None)
        self._waiting = left

    def _refusal(self, account: Account, verdict: Verdict, asked: Estimate) -> LimitReached:
        assert verdict.limit is not None
        again = account.resets_at
        return limit_reached(
            account.scope,
            verdict.limit,
            account.limits,
            account.used,
            asked.least,
            None if again is None else max(0.0, again - self._clock()),
        )

    def _release(self, accounts: Sequence[Account], asked: Estimate) -> None:
        for account in accounts:
            account.settle(asked.most, NOTHING)
        self._admit()

    def _settle(
        self, accounts: Sequence[Account], shared: Sequence[DayAccount], asked: Estimate, used: Amount
    ) -> None:
        for account in accounts:
            account.settle(asked.most, used)
        for account in shared:
            assert self.ledger is not None
            self.ledger.settle(account, asked.most, used)
        self._admit()
