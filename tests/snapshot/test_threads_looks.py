"""How the screen of durable threads looks, and a thread in the chat that cannot be gone on with."""

from functools import partial
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.looks import EACH_LOOK, Pictures, looking_at_list
from support.shell import IN_ASCII, screen_text, workbench
from support.waiting import until
from textual.pilot import Pilot

from pallas.model import Fault, FaultType, MessageRecord, ThreadRecord, ToolCall

SAID = (
    ("research", "Which customers were hit by the May invoice bug?", "mcp", "anonymous", 0.02),
    ("concierge", "Can I dim the lamps in the hall?", "rest", "token:website", 0.3),
    (
        "engineering",
        "Why do the tickets of May have no owner, and who can give them one?",
        "chat",
        "anonymous",
        3,
    ),
    ("vision", "", "mcp", "bearer:9f31c2", 30),
    ("research", "What does the warranty say about drivers?", "agent-tool", "jwt:corp:4af1", 300),
    ("research", "hello", "rest", "anonymous", 9_000),
)


looking = partial(looking_at_list, "threads", loaded=("warranty", "Escape goes back"))


def fleet() -> FakeFleet:
    made = FakeFleet()
    call = ToolCall("c1", "docs__search", {"query": "invoices"})
    for number, (agent, title, origin, owner, hours) in enumerate(SAID):
        name = f"conv-{number}-Wm9uZSBvZiB0aGVt"
        at = NOON - 3_600 * hours
        one: dict[str, Any] = {"thread": name, "status": "complete", "run": "r1", "created_at": at}
        made.kept.add(
            ThreadRecord(name, agent, owner, title, origin, 4 + 3 * number, at - 90, at, at),
            MessageRecord("1", turn_index=0, role="user", content=title or "What is this?", **one),
            MessageRecord("2", turn_index=1, role="assistant", content="", tool_calls=(call,), **one),
            MessageRecord("3", turn_index=2, role="tool", content="3 found", tool_call_id="c1", **one),
            MessageRecord("4", turn_index=3, role="assistant", content="Acme, Globex and Initech.", **one),
        )
    return made


@pytest.mark.slow
async def test_threads(pictures: Pictures) -> None:
    before = looking("down", seen="Acme, Globex")
    await pictures(workbench(fleet()), before, EACH_LOOK)


async def test_threads_in_ascii_without_colour(pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    before = looking("end", seen="Acme, Globex")
    await pictures(workbench(fleet(), settings=IN_ASCII), before)


async def test_no_threads_yet(pictures: Pictures) -> None:
    before = looking(seen="Escape goes back")
    await pictures(workbench(FakeFleet()), before)


async def test_a_thread_that_cannot_be_deleted(pictures: Pictures) -> None:
    made = fleet()
    app = workbench(made)

    async def before(pilot: Pilot[Any]) -> None:
        await looking("down", "x", seen="for good: Can I")(pilot)
        made.kept.problem = Fault(
            FaultType.AUTH, "read-only: conversations are shown to whoever holds the full token"
        )
        await pilot.press("y")
        await until(lambda: "✖ read-only" in screen_text(app), pilot)
        for _ in range(3):
            await pilot.pause()

    await pictures(app, before)
