"""Two fleets on one ledger, each with the same agent and its sessions, on a clock that the test moves."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import func, select

from pallas.ledger import Ledger, open_ledger, tables
from pallas.model import Fault

from .leased import ME, Clock, Found, Hooked, House


class Fleet(House):
    """A fleet with one agent, ``a``, and its ledger."""

    def __init__(self, ledger: Ledger, clock: Clock, kind: Any = "llm", **limits: Any) -> None:
        self.executor, self.ledger = Hooked(), ledger
        self.agent = Found(self.executor, name="a", kind=kind)
        super().__init__(self.agent, ledger=ledger, clock=clock, **limits)

    async def status(self, session: str) -> str:
        return str((await self.sessions.status(session, ME)).status)

    async def say(self, session: str, text: str, **more: Any) -> str:
        return (await self.sessions.prompt(session, text, ME, **more)).text

    async def stored(self) -> int:
        count = select(func.count()).select_from(tables.sessions)
        found: int = await self.ledger.database.read(lambda it: it.execute(count).scalar_one())
        return found


type Fleets = tuple[Fleet, Fleet, Clock]


@pytest_asyncio.fixture
async def fleets(database_url: str, request: pytest.FixtureRequest) -> AsyncIterator[Fleets]:
    """``indirect`` parameters are those of each fleet."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        ledgers = [await open_ledger(database_url, clock=clock) for _ in range(2)]
        found = []
        for ledger in ledgers:
            stack.push_async_callback(ledger.close)
            await ledger.inherit()  # sees that there is another one
            found.append(Fleet(ledger, clock, **getattr(request, "param", {})))
            stack.push_async_callback(found[-1].sessions.close_records)
            stack.push_async_callback(found[-1].sessions.end)
        one, two = found
        yield one, two, clock


async def fault_of(work: Any) -> Fault:
    """The Fault that this raises."""
    with pytest.raises(Fault) as caught:
        await work
    return caught.value
