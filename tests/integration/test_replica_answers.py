"""What one replica tells the others: notes, and answers to the questions of a task."""

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from support.databases import Server, fresh_database
from support.replicas import Replicas, in_its_call
from support.served import served
from support.survivors import ended_run, project
from support.tasks import TaskClient

from pallas.ledger import open_ledger

ASKS = """
from pallas.asking import ask


async def answer(request):
    found = await ask("Who?")
    return f"it is {found.text}"
"""


@pytest.mark.slow
async def test_a_question_of_a_task_is_answered_at_another_replica(tmp_path: Path, postgres: Server) -> None:
    async with fresh_database(postgres) as url:
        with ExitStack() as stack:
            fleets = []
            for name in ("one", "two"):
                root = project(tmp_path / name, url, lead={"kind": "handler", "handler": "asks:answer"})
                (root / "asks.py").write_text(ASKS)
                fleets.append(stack.enter_context(served(root)))
            for fleet in fleets:
                await fleet.logs("lead: ready")
            one, two = (TaskClient(fleet.url("lead"), answers=True) for fleet in fleets)
            task = (await one.call(message="hi"))["taskId"]
            # Longer than one notification of the database.
            name = "Ada " * 4_000
            (question,) = (await two.until(task, "input_required"))["inputRequests"]
            await two.answer(task, {question: {"action": "accept", "content": {"answer": name}}})
            done = await two.until(task)
            assert done["result"]["content"][0]["text"] == f"it is {name}"


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [{"*": "repeat"}], indirect=True)
async def test_a_task_of_a_replica_that_is_killed_is_polled_at_another(replicas: Replicas) -> None:
    one, two = (TaskClient(each.url("clerk")) for each in (replicas.one, replicas.two))
    task = (await one.call(message="work", conversation_id="a thread of mine"))["taskId"]
    await in_its_call(replicas.here)
    assert (await two.get(task))["status"] == "working"
    replicas.one.send(signal.SIGKILL)
    await in_its_call(replicas.here, 2)
    assert (await two.get(task))["status"] == "working"
    (replicas.here / "door").touch()
    done = await two.until(task)
    assert done["status"] == "completed"
    assert done["result"]["content"][-1]["text"].endswith('done: {"result":"waited b"}')
    assert (await ended_run(replicas.url))[0].attempt == 2


async def test_others_hear_a_note_and_what_is_none_is_ignored(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with fresh_database(postgres) as url:
        one, two, stranger = await open_ledger(url), await open_ledger(url), await asyncpg.connect(url)
        try:
            assert one.notes is not None
            assert two.notes is not None
            heard: asyncio.Queue[Any] = asyncio.Queue()
            one.notes.hear("topic", lambda body: heard.put_nowait(("one", body)))
            two.notes.hear("topic", lambda body: heard.put_nowait(("two", body)))
            for payload in (
                "",
                "no note",
                "a b 1 [",
                "a b 1 5",
                "a b many []",
                "a b 99999999 []",
                'a b 1 ["other", 1]',
            ):
                await stranger.execute("SELECT pg_notify('pallas_notes', $1)", payload)
            one.notes.tell("topic", "x" * 200_000)
            one.notes.tell("topic", {"said": "\u00e9" * 5_000})
            async with asyncio.timeout(60):
                assert await heard.get() == ("two", {"said": "\u00e9" * 5_000})
                # Each hears all that was said before.
                one.notes.tell("topic", "end")
                two.notes.tell("topic", "end")
                assert {await heard.get(), await heard.get()} == {("one", "end"), ("two", "end")}
            assert heard.empty()
            assert "was dropped: topic, 200013 characters" in caplog.text
            assert caplog.text.count("cannot be read, and is ignored") == 12
        finally:
            await stranger.close()
            await one.close()
            await two.close()
