"""The name of a conversation and the title of its thread, in a fleet of this process and an attached one."""

from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet

from pallas.model import Attachment, Fault, FaultType, ThreadRecord
from pallas.model.operations import TokenScope
from pallas_tui.chat.conversation import ChatConversation
from pallas_tui.chat.stored_thread import StoredThread
from pallas_tui.widgets.chat.thread_title import follow, rename

PLANS = ThreadRecord("conv-1", "echo", "anonymous", "hello", created_at=NOON)


def workbench(access: TokenScope | None = None) -> tuple[Any, FakeFleet, ChatConversation]:
    """A workbench with the conversation of a thread, over a fleet of its own or one that is attached."""
    fleet = FakeFleet()
    fleet.kept.add(PLANS)
    if access is not None:
        fleet.attachment = Attachment("desk.example:24200", NOON, access)
    held = ChatConversation("echo")

    async def nothing(limit: int, cursor: str) -> Any:
        raise AssertionError("nothing is read")

    held.open(StoredThread(PLANS, nothing))
    return SimpleNamespace(fleet=fleet), fleet, held


@pytest.mark.parametrize("access", [None, TokenScope.FULL])
async def test_a_name_is_the_title_of_the_thread(access: TokenScope | None) -> None:
    app, fleet, held = workbench(access)
    assert await rename(app, held, " Plans \x1b[31m of\nspring ") == ""
    assert fleet.kept.records["conv-1"].title.startswith("Plans")
    assert held.name.isprintable()
    fleet.kept.rename("conv-1", "Plans of summer")
    assert await follow(app, held) == ""
    assert held.name == "Plans of summer"


async def test_who_may_not_read_texts_does_not_look_at_titles() -> None:
    app, fleet, held = workbench(TokenScope.READ)
    assert await follow(app, held) == ""
    assert fleet.kept.looked == []


async def test_a_refusal_leaves_the_name_as_it_is() -> None:
    app, fleet, held = workbench()
    await rename(app, held, "Plans")
    fleet.kept.problem = Fault(FaultType.AUTH, "this token may only read")
    with pytest.raises(Fault, match="only read"):
        await rename(app, held, "Other plans")
    assert (held.name, held.unwritten_title) == ("Plans", "")
    assert await follow(app, held) == ""


async def test_a_title_that_waits_and_is_refused_is_said() -> None:
    app, fleet, held = workbench()
    del fleet.kept.records["conv-1"]
    assert "once it is written" in await rename(app, held, "Plans")
    fleet.kept.add(PLANS)

    def refuse(thread: str, title: str) -> ThreadRecord:
        raise Fault(FaultType.TIMEOUT, "the database did not answer")

    fleet.kept.rename = refuse  # type: ignore[method-assign]
    problem = await follow(app, held)
    assert "did not get the title Plans: the database did not answer" in problem
    assert held.name == "hello"


async def test_without_a_database_and_at_an_attached_agent_the_tab_has_the_name() -> None:
    app, fleet, held = workbench()
    fleet.kept.problem = Fault(FaultType.CONFIG, "this fleet stores nothing")
    assert "Only this tab has that name: this fleet stores nothing" in await rename(app, held, "Plans")
    assert held.name == "Plans"
    fleet.kept.problem = None
    there = ChatConversation("echo@desk")
    assert "Only this tab" in await rename(app, there, "Plans")
    assert there.name == "Plans"
