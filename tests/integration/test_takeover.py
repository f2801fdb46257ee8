"""A fleet goes on with the runs of another one that is gone."""

import asyncio
from pathlib import Path
from time import time

import pytest
from support.live import MODERN_FIRST, all_ready, ask, client, running
from support.survivors import effects, project, rows
from support.waiting import until

from pallas.fleet.local_port import LocalPort
from pallas.fleet.takeover import Takeover, is_due
from pallas.ledger import open_ledger
from pallas.model import (
    Message,
    NewThread,
    RunContinued,
    RunRecord,
    RunRequest,
    StoredRequest,
    ToolAnswer,
    ToolCall,
)
from pallas.model.codec import encode_sparse

CALL = Message("assistant", "", calls=(ToolCall("c1", "shelf__note", {"text": "a"}),))
NOTED = Message("tool", "noted a", answers=(ToolAnswer("c1", "noted a"),))


@pytest.fixture
def never_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fleets look for others that are gone once, when they start."""
    monkeypatch.setattr("pallas.fleet.takeover.LOOK_SECONDS", 3600.0)


async def left_behind(url: str, run_id: str, thread: str, *said: Message, request: RunRequest) -> None:
    """Another fleet is gone in the middle of a run of the thread ``mine``."""
    other = await open_ledger(url)
    record = RunRecord(run_id, "clerk", "anonymous", thread, "mcp", started_at=time())
    stored = encode_sparse(StoredRequest(request))
    question = Message("user", "work")
    await other.threads.begin(thread, record, question, new=NewThread("mine", "mcp"), request=stored)
    for message in said:
        await other.threads.add_message(thread, record, message)
    await other.close(hand_over=True)


@pytest.mark.usefixtures("never_by_itself", "forked_children")
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_message_that_waits_for_such_a_run_is_answered_after_it(tmp_path: Path, era: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "p", url)
    (root / "door").touch()
    async with running(root, database=url) as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        thread = "0" * 31 + "7"
        request = RunRequest("clerk", "", conversation="mine")
        await left_behind(url, "left", thread, CALL, NOTED, request=request)
        before = fleet.hub.seq
        async with client(fleet, "clerk", era=era) as clerk:
            waiting = asyncio.create_task(ask(clerk, "hi", conversation_id="mine"))
            await until(lambda: any(run.agent == "clerk" for run in fleet.kernel.in_flight))
            assert fleet.ledger is not None
            await Takeover(fleet.ledger, fleet.kernel, fleet.hub, None).look()
            async with asyncio.timeout(60):
                assert await waiting == "turn 2"
            assert await rows(fleet.ledger, thread) == [
                "user complete: work",
                "assistant complete: ",
                "tool complete: noted a",
                "assistant complete: ",
                "tool complete: waited b",
                'assistant complete: done: {"result":"waited b"}',
                "user complete: hi",
                "assistant complete: turn 2",
            ]
        assert effects(root) == ["wait b"]
        (event,) = (each for each in fleet.hub.since(before).events if isinstance(each, RunContinued))
        assert (event.run_id, event.attempt, event.calls) == ("left", 2, ())


@pytest.mark.usefixtures("never_by_itself", "forked_children")
async def test_a_run_that_is_over_shows_what_became_of_its_unfinished_calls(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "p", url, unfinished_calls={"shelf__wait": "repeat"})
    waits = Message("assistant", "", calls=(*CALL.calls, ToolCall("c2", "shelf__wait", {"text": "b"})))
    async with running(root, database=url) as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        assert fleet.ledger is not None
        port, ledger = LocalPort(fleet), fleet.ledger
        await left_behind(
            url, "left", "0" * 31 + "6", waits, request=RunRequest("clerk", "", conversation="m")
        )
        await Takeover(ledger, fleet.kernel, fleet.hub, None).look()
        await until(lambda: effects(root) == ["wait b"])
        lines = ("shelf__note: told the model", "shelf__wait: called again")
        assert await port.unfinished_calls("left") == lines
        (root / "door").touch()

        async def is_over() -> bool:
            found = await ledger.runs.get("left")
            return found is not None and found.status == "ok"

        await until(is_over)
        assert await port.unfinished_calls("left") == lines
        assert await port.unfinished_calls("another") == ()


@pytest.mark.usefixtures("forked_children")
async def test_a_run_of_its_own_that_a_fleet_does_not_know_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.fleet.takeover.LOOK_SECONDS", 0.05)
    root = project(tmp_path / "p", f"sqlite:///{tmp_path}/ledger.sqlite3")
    (root / "door").touch()
    async with running(root, database=f"sqlite:///{tmp_path}/ledger.sqlite3") as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        ledger, thread = fleet.ledger, "0" * 31 + "8"
        assert ledger is not None
        # As after a claim whose answer was lost.
        record = RunRecord("lost", "clerk", "anonymous", thread, "mcp", started_at=time())
        stored = encode_sparse(StoredRequest(RunRequest("clerk", "", conversation="mine")))
        question = Message("user", "work")
        await ledger.threads.begin(thread, record, question, new=NewThread("mine", "mcp"), request=stored)
        async with client(fleet, "clerk") as clerk:
            assert await ask(clerk, "hi", conversation_id="mine") == "turn 2"
        found = await ledger.runs.get("lost")
        assert found is not None
        assert (found.status, found.attempt) == ("ok", 2)
    assert effects(root) == ["note a", "wait b"]


def test_of_many_fleets_about_ten_look_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = [number / 1_000 for number in range(1_000)]
    for fleets, looks in ((1, 1_000), (10, 1_000), (100, 100), (1_000, 10)):
        left = iter(draws)
        monkeypatch.setattr("random.random", lambda left=left: next(left))
        assert sum(is_due(fleets) for _ in draws) == looks
