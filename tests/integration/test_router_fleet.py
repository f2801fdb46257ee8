"""Routers in a fleet that runs: who answers, what is said of it, and what becomes of what goes wrong."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from support.bridged import tell
from support.granted import TOKENS, auth
from support.granted import rules as granted
from support.live import MODERN_FIRST, HeardEvents, all_ready, ask, client, running
from support.ports import free_ports
from support.virtual import virtual
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import (
    ANONYMOUS,
    AgentState,
    Event,
    Fault,
    FaultType,
    Image,
    Routed,
    RunFinished,
    RunRequest,
    RunStarted,
    ToolEvent,
)

AGENTS = """
import asyncio


async def teller(request):
    return f"{request.thread} knows {len(request.history)}"


async def coder(request):
    said = [message.text for message in request.history]
    return f"coder: {request.text} after {said} as {request.principal}, {dict(request.params)}"


async def writer(request):
    for piece in ("writer: ", request.text):
        yield piece
        await asyncio.sleep(0)


writer.vision = True


async def broken(request):
    raise ValueError("kaput")


async def chooser(request):
    assert "Choose which one of these agents" in request.text
    if "by hand" in request.text:
        await asyncio.Event().wait()
    return "writer" if "model says writer" in request.text else "well, coder perhaps"
"""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ENTRIES = {
    "coder": {
        "kind": "handler",
        "handler": "answers:coder",
        "capabilities": ["coding"],
        "examples": ["Fix the failing test", "Refactor this class"],
    },
    "writer": {
        "kind": "handler",
        "handler": "answers:writer",
        "capabilities": ["writing"],
        "examples": ["Write a blog post", "Proofread this letter"],
    },
    "broken": {"kind": "handler", "handler": "answers:broken", "examples": ["Break the vase"]},
    "teller": {"kind": "handler", "handler": "answers:teller", "examples": ["Tell where we are"]},
    "tells": {"kind": "router", "agents": ["teller"], "fallback": "writer"},
    "chooser": {"kind": "handler", "handler": "answers:chooser"},
    "front": {"kind": "router", "agents": ["coder", "writer", "broken"]},
    "safe": {"kind": "router", "agents": ["coder"], "by": "capability", "fallback": "writer"},
    "clever": {"kind": "router", "agents": ["coder", "writer"], "by": "model", "ask": "chooser"},
    "outer": {"kind": "router", "agents": ["front", "chooser"]},
}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def routes(root: Path) -> AsyncIterator[Fleet]:
    """A fleet of all of them that runs."""
    (port,) = free_ports(1)
    (root / "answers.py").write_text(AGENTS)
    (root / "agents.yaml").write_text(
        yaml.safe_dump({"name": "routes", "port": port, "agents": ENTRIES}, sort_keys=False)
    )
    async with running(root) as fleet:
        await until(lambda: all_ready(fleet))
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with routes(tmp_path_factory.mktemp("router")) as fleet:
        yield fleet


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_the_agent_that_fits_answers_and_who_it_was_is_in_the_result(fleet: Fleet, era: str) -> None:
    # DR-32
    async with client(fleet, "front", era=era) as connected:
        result = await connected.call_tool("send_message", {"message": "fix this test please"})
        assert "coder: fix this test please" in "".join(getattr(each, "text", "") for each in result.content)
        assert result.meta is not None
        assert [value for key, value in result.meta.items() if key.endswith("/routed")] == ["coder"]
    async with client(fleet, "front", era=era) as another:
        assert await ask(another, "proofread my letters") == "writer: proofread my letters"


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_who_it_was_is_in_the_documents_of_the_bridge(fleet: Fleet, era: str) -> None:
    # DR-32
    asked = {"agentId": "front", "prompt": "fix this test please"}
    async with virtual(fleet, "/mcp", era=era) as bridge:
        session = (await tell(bridge, "sessions_create", agentId="front"))["sessionId"]
        said = await tell(bridge, "sessions_prompt", sessionId=session, prompt=asked["prompt"])
        delegated = await tell(bridge, "tasks_delegate", **asked)
    async with virtual(fleet, "/virtual/agent-front/mcp", era=era) as tool:
        chat = (await tool.call_tool("chat", {"message": asked["prompt"]})).structured_content
    assert [body["routed"] for body in (said, delegated, chat)] == ["coder"] * 3


async def test_the_choice_is_an_event_and_both_runs_belong_to_one_trace(fleet: Fleet) -> None:
    with HeardEvents(fleet) as heard:
        result = await fleet.kernel.run(RunRequest("front", "refactor my class"))
    assert result.routed == "coder"
    (routed,) = heard.of(Routed)
    assert (routed.agent, routed.run_id, routed.to, routed.by) == (
        "front",
        result.run_id,
        "coder",
        "examples",
    )
    assert routed.why.startswith("like its example “Refactor this class” (")
    assert routed.others == ("writer", "broken")
    outer, inner = heard.of(RunStarted)
    call = heard.of(ToolEvent)[0]
    assert (outer.agent, inner.agent, inner.surface) == ("front", "coder", "router")
    assert (inner.trace_id, inner.parent_span) == (outer.trace_id, call.span_id)
    assert (call.run_id, call.server, call.phase) == (outer.run_id, "coder", "started")
    assert [each.outcome for each in heard.of(RunFinished)] == ["ok", "ok"]


async def test_what_the_chosen_agent_writes_is_heard_as_the_routers_text(fleet: Fleet) -> None:
    heard: list[Event] = []
    request = RunRequest("front", "write a blog post", stream_text=True)
    result = await fleet.kernel.run(request, heard.append)
    texts = [event for event in heard if type(event).__name__ == "TextDelta"]
    assert "".join(event.text for event in texts) == "writer: write a blog post" == result.text  # type: ignore[attr-defined]
    assert {(event.agent, event.actor) for event in texts} == {("front", "")}  # type: ignore[attr-defined]


async def test_a_conversation_stays_with_whom_it_began_and_its_history_goes_along(fleet: Fleet) -> None:
    first = RunRequest("front", "fix the tests", conversation="stays", new_conversation=True)
    await fleet.kernel.run(first)
    with HeardEvents(fleet) as heard:
        result = await fleet.kernel.run(
            RunRequest("front", "now write a blog post about it", conversation="stays")
        )
    assert result.text.startswith("coder: now write a blog post about it after ['fix the tests', 'coder: fix")
    (routed,) = heard.of(Routed)
    assert (routed.to, routed.by) == ("coder", "conversation")


async def test_the_chosen_agent_goes_on_in_one_conversation_until_another_answered(fleet: Fleet) -> None:
    async def said(text: str) -> str:
        return (await fleet.kernel.run(RunRequest("tells", text, conversation="where-we-are"))).text

    teller, writer = (
        next(each for each in fleet.agents if each.name == name) for name in ("teller", "writer")
    )
    first, second = await said("tell where we are"), await said("and now?")
    where = first.removesuffix(" knows 0")
    assert where.startswith("conv-")
    assert second == f"{where} knows 2"
    await teller.stop("away")
    try:
        assert "writer" in await said("and now?")
    finally:
        await teller.start()
    await writer.stop("away")
    try:
        third = await said("tell where we are")
    finally:
        await writer.start()
    # It had not heard what the other said: it is told all of it, in another conversation.
    assert third.endswith(" knows 6")
    assert not third.startswith(where)
    # Each caller has a conversation of its own behind the router, too.
    result = await fleet.kernel.run(RunRequest("tells", "tell where we are", conversation="elsewhere"))
    assert result.text.endswith(" knows 0")
    assert not result.text.startswith(where)


async def test_who_is_gone_is_told_when_another_answers_in_its_conversation(fleet: Fleet) -> None:
    # DR-32
    await fleet.kernel.run(RunRequest("front", "fix the tests", conversation="moves", new_conversation=True))
    coder = next(agent for agent in fleet.agents if agent.name == "coder")
    await coder.stop("away")
    try:
        with HeardEvents(fleet) as heard:
            result = await fleet.kernel.run(RunRequest("front", "write a letter", conversation="moves"))
        assert result.routed == "writer"
        (routed,) = heard.of(Routed)
        assert routed.why.startswith("coder, which answered before, is unavailable (away); like its example")
        with pytest.raises(Fault) as refused:
            await fleet.kernel.run(RunRequest("front", "fix the tests"))
        assert refused.value.type is FaultType.UPSTREAM
        assert {each["agent"]: each["status"] for each in refused.value.data["candidates"]} == {
            "coder": "unavailable",
            "writer": "ready",
            "broken": "ready",
        }
    finally:
        await coder.start()


async def test_the_fault_of_the_chosen_agent_comes_back_with_its_name(fleet: Fleet) -> None:
    with pytest.raises(Fault) as direct:
        await fleet.kernel.run(RunRequest("broken", "break the vase"))
    with pytest.raises(Fault) as routed:
        await fleet.kernel.run(RunRequest("front", "break the vase"))
    assert (routed.value.type, routed.value.message) == (direct.value.type, direct.value.message)
    assert routed.value.data["routed"] == "broken"
    with pytest.raises(Fault) as deeper:
        await fleet.kernel.run(RunRequest("outer", "break the vase"))
    assert deeper.value.data["routed"] == "broken"


async def test_where_nobody_fits_the_fallback_answers_or_the_candidates_are_told(fleet: Fleet) -> None:
    with pytest.raises(Fault, match="no agent fits “bake a cake”; the candidates were coder, writer, broken"):
        await fleet.kernel.run(RunRequest("front", "bake a cake"))
    with HeardEvents(fleet) as heard:
        result = await fleet.kernel.run(RunRequest("safe", "bake a cake"))
    assert result.text == "writer: bake a cake"
    assert [each.by for each in heard.of(Routed)] == ["fallback"]


async def test_a_model_that_is_asked_decides_and_one_that_rambles_does_not(fleet: Fleet) -> None:
    with HeardEvents(fleet) as heard:
        result = await fleet.kernel.run(RunRequest("clever", "fix it, model says writer"))
    assert result.routed == "writer"
    assert [(each.to, each.by) for each in heard.of(Routed)] == [("writer", "model")]
    assert [each.agent for each in heard.of(RunStarted)] == ["clever", "chooser", "writer"]
    with HeardEvents(fleet) as heard:
        await fleet.kernel.run(RunRequest("clever", "fix the test"))
    (routed,) = heard.of(Routed)
    assert (routed.to, routed.by) == ("coder", "examples")
    assert "answered “well, coder perhaps”, which is none of them" in routed.why


async def test_a_cancelled_run_takes_along_whom_the_router_asked(fleet: Fleet) -> None:
    with HeardEvents(fleet) as heard:
        task = asyncio.create_task(fleet.kernel.run(RunRequest("clever", "choose by hand")))
        await until(lambda: len(heard.of(RunStarted)) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: len(heard.of(RunFinished)) == 2)
    assert {(each.agent, each.outcome) for each in heard.of(RunFinished)} == {
        ("clever", "cancelled"),
        ("chooser", "cancelled"),
    }


async def test_a_picture_goes_only_to_who_takes_pictures(fleet: Fleet) -> None:
    images = (Image(PIXEL, "image/png"),)
    result = await fleet.kernel.run(RunRequest("front", "write a blog post", images))
    assert result.routed == "writer"
    with pytest.raises(
        Fault, match=r"the candidates were coder \(it takes no images\), writer, broken \(it takes"
    ):
        await fleet.kernel.run(RunRequest("front", "fix the test", images))


async def test_a_router_is_found_by_what_those_behind_it_can_do(fleet: Fleet) -> None:
    found = fleet.surfaces.directory.infos(ANONYMOUS, "coding")
    assert [(each.id, each.kind) for each in found if each.id in ("coder", "writer", "front")] == [
        ("coder", "handler"),
        ("front", "router"),
    ]


async def test_only_whom_the_caller_may_run_comes_into_question(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "answers.py").write_text(AGENTS)
    rules = {"token:ada": ["run:agents"], "token:bob": ["run:agents:front", "run:agents:writer"]}
    content = {"name": "asks", "port": port, "auth": auth(), "rbac": granted(rules), "agents": ENTRIES}
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    async with running(tmp_path) as fleet:
        await until(lambda: all_ready(fleet))
        async with client(fleet, "front", bearer=TOKENS["ada"]) as ada:
            assert "as token:ada" in await ask(ada, "fix the test")
        async with client(fleet, "front", bearer=TOKENS["bob"]) as bob:
            refused = await bob.call_tool("send_message", {"message": "fix the test"})
            text = "".join(getattr(each, "text", "") for each in refused.content)
            assert refused.is_error
            assert "no agent fits “fix the test”; the candidates were writer" in text
            assert "coder" not in text
            assert await ask(bob, "write a blog post") == "writer: write a blog post"


async def test_a_router_that_is_served_alone_says_what_it_lacks(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    (tmp_path / "answers.py").write_text(AGENTS)
    content = {"name": "alone", "port": port, "agents": ENTRIES}
    (tmp_path / "agents.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    async with running(tmp_path, only="front") as alone:
        (front,) = alone.agents
        await until(lambda: front.state is AgentState.ERROR)
        assert "this fleet serves it without coder, writer, broken; serve the whole project" in front.reason


async def test_a_fleet_that_drains_lets_a_router_finish(tmp_path: Path) -> None:
    async with routes(tmp_path) as fleet:
        with HeardEvents(fleet) as heard:
            refuse = lambda event: fleet.kernel.refuse() if isinstance(event, Routed) else None  # noqa: E731
            result = await fleet.kernel.run(RunRequest("front", "fix the tests"), refuse)
        assert result.routed == "coder"
        with pytest.raises(Fault, match="draining"):
            await fleet.kernel.run(RunRequest("coder", "hello"))
    assert [each.agent for each in heard.of(RunStarted)] == ["front", "coder"]
