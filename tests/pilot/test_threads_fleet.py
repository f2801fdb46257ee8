"""A real fleet in the workbench: runs of every surface are seen and cancelled; threads outlast the fleet."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.fleet_desk import desk
from support.live import ERAS, agent_module, client
from support.offline import model_record, offline_project
from support.virtual import virtual
from support.waiting import poll

from pallas_tui.runs.feed_run import FeedRun
from pallas_tui.screens.record_screens import ThreadsScreen
from pallas_tui.screens.run_screen import RunScreen

SCRIPT = """
rules:
  - when: {last: user, text: slow tool}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user, text: use your tool}
    call: [{tool: echo__echo, arguments: {text: "deep"}}]
  - when: {last: user}
    say: "turn {{ turns }}"
  - when: {last: tool}
    say: "It said deep."
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    return offline_project(root, {"worker": agent_module("worker", ("echo",))}, SCRIPT)


@pytest.mark.slow
async def test_a_run_of_any_surface_is_seen_opened_and_cancelled(project: Path) -> None:
    # UN-2
    async with desk(project) as here:

        async def rest() -> None:
            async with here.http() as http:
                await http.post("/agents/worker/chat", json={"message": "slow tool"})

        def mcp(era: str) -> Callable[[], Awaitable[None]]:
            async def send() -> None:
                async with client(here.fleet, "worker", era=era) as connected:
                    await connected.call_tool("send_message", {"message": "slow tool"})

            return send

        async def as_tool() -> None:
            async with virtual(here.fleet, "/virtual/agent-worker/mcp", era=ERAS[0]) as connected:
                await connected.call_tool("chat", {"message": "slow tool"})

        surfaces: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("rest", rest),
            *(("mcp", mcp(era)) for era in ERAS),
            ("agent-tool", as_tool),
        ]
        await here.press("f4")
        for number, (surface, send) in enumerate(surfaces, 1):
            await here.press("f")
            asked = asyncio.ensure_future(send())
            try:

                def newest(number: int = number) -> FeedRun | None:
                    runs = here.feed.feed.runs
                    found = runs[-1] if len(runs) == number else None
                    calling = found is not None and any(step.call_id for step in found.steps)
                    return found if calling else None

                run: FeedRun = await here.until(newest)
                assert run.surface == surface
                await here.sees("echo/slow", "running")
                if surface == "rest":  # a longer word would leave the message no room
                    await here.sees("rest · slow tool")
                here.feed.reveal(_target(run))
                await here.press("enter")
                await here.until(lambda: isinstance(here.app.screen, RunScreen))
                await here.sees("surface", surface, "slow tool", run.id)
                await here.press("escape")
                await here.until(lambda: here.app.screen is here.app.main)
                await here.press("x")
                await here.sees("Cancel the run of worker")
                await here.press("y")
                await here.until(partial(_is_cancelled, run))
                await asyncio.wait_for(asyncio.shield(_over(asked)), 30)
            finally:
                asked.cancel()
        await here.sees("cancelled")


def _is_cancelled(run: FeedRun) -> bool:
    return run.state == "cancelled"


async def _over(asked: asyncio.Future[None]) -> None:
    await asyncio.wait({asked})


def _target(run: FeedRun) -> Any:
    from pallas_tui.targets import RunTarget

    return RunTarget(run.id)


@pytest.mark.slow
async def test_threads_of_every_surface_outlast_the_fleet_and_are_gone_on_with(
    project: Path, tmp_path: Path
) -> None:
    home = tmp_path / "workbench.yaml"
    async with desk(project, home) as here:
        await here.ask("said in the workbench")
        await here.until(lambda: here.view.conversation.thread)
        async with here.http() as http:
            answer = await http.post("/agents/worker/chat", json={"message": "use your tool, over REST"})
            assert answer.status_code == 200, answer.text
            other = answer.json()["threadId"]
        await here.press("alt+t")
        await here.until(lambda: isinstance(here.app.screen, ThreadsScreen))
        await here.sees("use your tool, over REST", "said in the workbench", "rest", "mcp", "2 threads")
        mine = here.view.conversation.thread
        assert {record.id for record in here.app.threads.records} == {mine, other}
        await here.press("escape")

    async with desk(project, home) as here:
        # The tab of before is there again, with what was said.
        await here.sees("said in the workbench", "turn 1")
        assert here.view.conversation.thread == mine
        await here.ask("and now?")
        await here.sees("turn 2")
        assert here.view.conversation.thread == mine
        said = [message["content"] for message in model_record(here.fleet).requests[-1]["messages"]]
        assert any("said in the workbench" in str(each) for each in said)

        await here.ask("/resume " + other)
        await here.until(lambda: here.view.conversation.thread == other)
        await here.sees("use your tool, over REST", "echo/echo", "It said deep.")
        await here.ask("go on")
        await here.sees("turn 2")
        assert here.app.fleet is not None
        page = await here.app.fleet.thread_messages(other)
        assert [row.role for row in page.items if row.role == "user"] == ["user", "user"]


@pytest.mark.slow
async def test_a_conversation_has_one_name_in_the_workbench_and_over_rest(project: Path) -> None:
    async with desk(project) as here, here.http() as http:

        async def titles() -> list[str]:
            return [each["title"] for each in (await http.get("/threads")).json()["items"]]

        await here.ask("/set name Plans of spring")
        await here.ask("hello")
        await here.sees("turn 1", "Plans of spring")
        await poll(titles, lambda found: found == ["Plans of spring"])
        thread = here.view.conversation.thread
        await http.patch(f"/threads/{thread}", json={"title": "Plans of summer"})
        await here.until(lambda: here.view.conversation.name == "Plans of summer")
        # What was said is found, and opened. The title has only the beginning.
        said = await http.post("/agents/worker/chat", json={"message": "hay " * 40 + "and a needle"})
        await here.press("alt+t")
        await here.until(lambda: isinstance(here.app.screen, ThreadsScreen))
        await here.sees("Plans of summer", "2 threads")
        await here.press("slash", *"needle")
        await here.sees("and a needle", "1 of 2 threads")
        await here.press("enter", "enter")
        await here.until(lambda: here.view.conversation.thread == said.json()["threadId"])


@pytest.mark.slow
async def test_a_thread_shows_its_branches_and_they_show_where_they_began(project: Path) -> None:
    async with desk(project) as here, here.http() as http:
        await here.ask("one")
        await here.ask("two")
        origin = here.view.conversation.thread
        await here.press("escape", "k", "k", "e")  # the second question
        await here.until(lambda: here.view._prompt.text == "two")
        here.view._prompt.insert(" and a half")
        await here.press("enter")
        await here.until(lambda: here.view.conversation.thread not in ("", origin))
        edited = here.view.conversation.thread
        await here.press("escape", "k", "k", "k", "a")  # the first answer
        await here.until(lambda: here.view.conversation.thread == "" and here.view.conversation.entries)
        await here.ask("three")
        branched = here.view.conversation.thread

        document = (await http.get(f"/threads/{edited}")).json()
        assert (document["branchedFrom"], document["branchedAt"], document["messages"]) == (origin, 2, 4)
        document = (await http.get(f"/threads/{branched}")).json()
        assert (document["branchedFrom"], document["branchedAt"]) == (edited, 2)
        assert (await http.get(f"/threads/{origin}")).json()["branchedFrom"] is None
        found = (await http.get("/threads", params={"branchesOf": origin})).json()["items"]
        assert [each["id"] for each in found] == [edited]

        await here.press("alt+t")
        await here.until(lambda: isinstance(here.app.screen, ThreadsScreen))
        await here.sees("of two and a half, after")
        await here.press("end")
        await here.sees("two and a half, after", gone=("of two and a half",))
        assert (await http.delete(f"/threads/{origin}")).status_code == 204
        assert (await http.get(f"/threads/{edited}")).json()["branchedFrom"] is None
