"""Sessions that go on with a thread that is there already (C11)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from support.executors import FakeExecutor, Gate
from support.leased import ME, YOU, Found, Hooked, House
from support.waiting import until

from pallas.model import ANONYMOUS, Fault, FaultType, RunRequest


def house() -> tuple[House, Hooked]:
    executor = Hooked()
    return House(Found(executor, name="a"), Found(FakeExecutor(), name="b")), executor


async def begun(house: House, handle: str = "mine") -> str:
    """A conversation that was begun elsewhere."""
    asked = RunRequest(agent="a", text="one", conversation=handle, principal=ME)
    return (await house.kernel.run(asked)).conversation or ""


async def refused(house: House, metadata: Mapping[str, Any], principal: Any = ME, agent: str = "a") -> Fault:
    with pytest.raises(Fault) as caught:
        await house.sessions.create(agent, principal, metadata=metadata)
    assert house.sessions.active == 0
    return caught.value


async def test_a_session_goes_on_with_what_was_said_elsewhere() -> None:
    # C11
    there, executor = house()
    thread = await begun(there)
    made = await there.sessions.create("a", ME, metadata={"threadId": thread})
    assert made.status == "active"
    assert (await there.sessions.prompt(made.id, "two", ME)).text == "2:two"
    done = await there.sessions.delegate("three", ME, agent="a", metadata={"threadId": thread})
    assert done.result is not None
    assert done.result.text == "4:three"
    await there.sessions.close(made.id, ME)
    assert executor.metadata[0]["threadId"] == thread
    said = await there.kernel.open("a", thread, None, ME)
    assert [each.text for each in said][::2] == ["one", "two", "three"]


async def test_whoever_talks_in_a_thread_waits_for_who_does() -> None:
    there, executor = house()
    thread = await begun(there)
    gate = Gate()
    executor.answer = gate.answer
    first = await there.sessions.create("a", ME, metadata={"threadId": thread})
    second = await there.sessions.create("a", ME, metadata={"threadId": thread})
    one = asyncio.create_task(there.sessions.prompt(first.id, "x", ME))
    await gate.reached.wait()
    two = asyncio.create_task(there.sessions.prompt(second.id, "y", ME))
    conversation = there.kernel.conversation("a", thread)
    assert conversation is not None
    await until(lambda: conversation.queued)
    gate.open.set()
    assert [(await each).text for each in (one, two)] == ["2:x", "4:y"]


async def test_a_thread_that_is_not_ones_own_is_not_there() -> None:
    there, _ = house()
    thread = await begun(there)
    for principal, agent, named in (
        (YOU, "a", thread),
        (ANONYMOUS, "a", thread),
        (ME, "b", thread),
        (ME, "a", "never"),
        (ME, "a", "conv-" + "x" * 24),
        (ME, "a", "x" * 201),
    ):
        fault = await refused(there, {"threadId": named}, principal, agent)
        assert (fault.type, fault.data["key"]) == (FaultType.UPSTREAM, "threadId")
        assert fault.message.startswith("Thread not found: ")
        assert f"thread of yours with {agent}" in fault.message
    for wrong in ({"threadId": 1}, {"threadId": ""}, {"threadId": thread, "resume": "x"}):
        assert (await refused(there, wrong)).type is FaultType.PROTOCOL
