"""How many messages may wait for one thread, counted over all replicas."""

import asyncio
from typing import Any

import pytest
from support.live import ERAS
from support.replicas import Replicas, Setup, in_its_call, waiting
from support.served import fault_in, text_of
from support.surfaces import rest

THREAD = {"conversation_id": "a thread of mine"}
TWO_WAIT = Setup(constants={"pallas.ledger.thread_queue.MAX_WAITING": 2})


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [TWO_WAIT], indirect=True)
async def test_one_message_too_many_is_refused_at_any_replica_with_a_time_to_come_back(
    replicas: Replicas,
) -> None:
    async with (
        replicas.one.client("clerk", ERAS[0]) as one,
        replicas.two.client("clerk", ERAS[1]) as two,
        rest(replicas.two) as api,
    ):

        def say(clerk: Any, text: str) -> asyncio.Task[Any]:
            return asyncio.create_task(clerk.call_tool("send_message", {"message": text, **THREAD}))

        first = say(one, "work")
        await in_its_call(replicas.here)
        waits = []
        for number, clerk in enumerate((one, two), 1):
            waits.append(say(clerk, f"say {number}"))
            await waiting(replicas.url, number)
        for clerk in (one, two):
            fault = fault_in(await say(clerk, "one too many"))
            assert "2 messages wait in this conversation already" in fault["error"]
            assert (fault["data"]["retryable"], fault["data"]["retry_after"]) == (True, 5.0)
        body = {"message": "one too many", "threadId": THREAD["conversation_id"]}
        refused = await api.post("/agents/clerk/chat", json=body)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        await waiting(replicas.url, 2)
        (replicas.here / "door").touch()
        assert "waited b" in text_of(await first)
        assert [text_of(await each) for each in waits] == ["turn 2", "turn 3"]
        assert text_of(await say(two, "again")) == "turn 4"
