"""A cancel that crosses the answer to what it cancels: that is nobody's mistake, and ends no process."""

import asyncio
from pathlib import Path

import pytest
from support.apart import hosted
from support.waiting import until

from pallas.executors.ipc.child_messages import CancelCall


@pytest.mark.slow
async def test_a_cancel_that_comes_after_the_answer_is_not_answered_again(tmp_path: Path) -> None:
    # HC-32
    async with hosted(tmp_path) as crew:
        assert await crew.act("say", "one") == "one"
        connection, pid = crew.host._connection, crew.host.pid
        assert connection is not None
        connection.send(CancelCall(connection.calls_made))
        assert await crew.act("say", "two") == "two"
        waiting = asyncio.create_task(crew.reply("wait"))
        await until(lambda: any(each.has_begun for each in connection.calls.values()))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await until(lambda: not connection.calls)
        assert await crew.act("say", "three") == "three"
        assert (crew.host.pid, crew.told) == (pid, [])
