"""A handle that no thread has is not looked for in the ledger, and a wrong guess changes nothing."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from support.databases import database_url, postgres  # noqa: F401
from support.executors import FakeAgent, FakeExecutor
from support.waiting import until

from pallas.ledger import Ledger, open_ledger, thread_table
from pallas.model import Fault, FaultType, Principal, RunRequest
from pallas.model.ids import mint
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

SECRET = "0b7c2f0e-7d5a-4c1f-9a53-6f0a4b9c1d2e"


class Fleet:
    """A kernel on a ledger, and the handles that were looked for in it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.looked: list[str] = []
        self.kernel = Kernel(EventHub())
        self.kernel.use_ledger(ledger)
        self.kernel.attach(FakeAgent(FakeExecutor()))
        resolve = ledger.threads.resolve

        async def noted(agent: str, handle: str) -> Any:
            self.looked.append(handle)
            return await resolve(agent, handle)

        ledger.threads.resolve = noted  # type: ignore[method-assign]

    async def knows_all(self) -> None:
        """Until it knows the handles that are stored."""
        await self.say("first")
        await until(lambda: not self.ledger.threads.may_have(mint()))
        self.looked.clear()

    async def say(self, handle: str, *, caller: str = "", new: bool = False) -> tuple[str, str]:
        """The answer, which begins with the number of messages before, and the thread."""
        asked = RunRequest("echo", "hi", conversation=handle, new_conversation=new)
        if caller:
            asked = replace(asked, principal=Principal(caller))
        result = await self.kernel.run(asked)
        return result.text, result.thread


@pytest.fixture
async def begun(database_url: str) -> AsyncIterator[Callable[[], Any]]:  # noqa: F811
    fleets: list[Fleet] = []

    async def begin() -> Fleet:
        fleets.append(Fleet(await open_ledger(database_url)))
        return fleets[-1]

    yield begin
    for each in fleets:
        await each.kernel.close(0.1)
        await each.kernel.close_records()
        await each.ledger.close()


async def test_a_new_handle_is_not_looked_for_and_a_stored_one_is(begun: Callable[[], Any]) -> None:
    before = await begun()
    said = {handle: await before.say(handle) for handle in ("plain", SECRET, "größer als ✓")}
    after = await begun()
    await after.knows_all()
    for number in range(5):
        assert (await after.say(f"never used {number}"))[0] == "0:hi"
        assert (await after.say(f"never used {number}"))[0] == "2:hi"
    assert after.looked == []
    for handle, (_, thread) in said.items():
        assert await after.say(handle) == ("2:hi", thread)
    assert len(after.looked) == len(said)


async def test_a_conversation_that_is_made_for_its_first_message_is_not_looked_for(
    begun: Callable[[], Any],
) -> None:
    fleet = await begun()
    handle = mint()
    assert (await fleet.say(handle, new=True))[0] == "0:hi"
    assert fleet.looked == []
    other = await begun()
    assert (await other.say(handle))[0] == "2:hi"
    assert other.looked == [handle]


async def test_a_handle_that_another_fleet_has_just_made_leads_to_its_thread(
    begun: Callable[[], Any],
) -> None:
    one, two = await begun(), await begun()
    await one.knows_all()
    await two.knows_all()
    _, thread = await one.say("both", caller="ada")
    assert await two.say("both", caller="ada") == ("2:hi", thread)
    assert await one.say("both", caller="ada") == ("4:hi", thread)


@pytest.mark.slow
@pytest.mark.parametrize("handle", [SECRET, "guessed"])
async def test_a_handle_that_another_fleet_has_just_made_is_refused_to_other_callers(
    begun: Callable[[], Any], handle: str
) -> None:
    one, two = await begun(), await begun()
    await two.knows_all()
    _, thread = await one.say(handle, caller="ada")
    shown: list[str] = []
    for fleet in (one, two):
        with pytest.raises(Fault) as refused:
            await fleet.say(handle, caller="eve")
        assert refused.value.type is FaultType.UPSTREAM
        shown.append(refused.value.message)
    assert shown[0] == shown[1]
    assert len((await one.ledger.threads.history(thread))[0]) == 2
    assert await two.say(handle, caller="ada") == ("2:hi", thread)


async def test_with_others_on_the_ledger_each_handle_is_looked_for(begun: Callable[[], Any]) -> None:
    fleet = await begun()
    await fleet.knows_all()
    fleet.ledger.has_others = True
    assert (await fleet.say("new"))[0] == "0:hi"
    assert fleet.looked == ["new"]


async def test_where_too_many_are_stored_each_handle_is_looked_for(
    begun: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await begun()
    for number in range(4):
        await before.say(f"stored {number}")
    monkeypatch.setattr(thread_table, "MOST", 3)
    monkeypatch.setattr(thread_table, "_HANDLES", thread_table._HANDLES.limit(4))
    after = await begun()
    await after.ledger.threads.learn_handles()
    assert (await after.say("new"))[0] == "0:hi"
    assert after.looked == ["new"]
