"""One thread, whatever way it is talked to, and what a killed fleet leaves of it."""

import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from support.bridged import tell
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.served import Served, fault_in, served
from support.surfaces import SURFACES, door, rest, rows, say, typed
from support.tasks import TaskClient
from support.waiting import poll

SCRIPT = """
rules:
  - when: {last: user, text: wait for it}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user, text: again and again}
    call: [{tool: echo__echo, arguments: {text: "{{ last }}"}}]
  - when: {last: tool, user: again and again}
    call: [{tool: echo__echo, arguments: {text: "{{ last }}"}}]
  - when: {last: user, text: two tools}
    call: [{tool: echo__echo, arguments: {text: "one"}}, {tool: echo__echo, arguments: {text: "two"}}]
  - when: {last: tool}
    say: "the tools said so"
  - when: {last: user}
    say: "turn {{ turns }}"
"""
HANDLERS = """
from collections import Counter
from dataclasses import dataclass

from pallas.contract import HandlerResponse, Text

turns = Counter()


@dataclass
class Said:
    text: str


async def counts(payload, metadata):
    turns[metadata.thread_id] += 1
    return HandlerResponse.respond(Said(f"turn {turns[metadata.thread_id]}"))


async def asks(payload, metadata):
    if metadata.from_id != "system.caller":
        return HandlerResponse.respond(payload)
    return HandlerResponse(Text(payload.text), to="counts" if payload.text == "count" else "boss")
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("threads")
    with served(_project(root / "p", "far", "small"), **_environment(root)) as running:
        yield running


def _project(root: Path, *more: str) -> Path:
    agents: dict[str, str | None] = {name: agent_module(name, ("echo",)) for name in ("boss", *more)}
    keys: dict[str, dict[str, Any]] = {
        "far": {"isolation": "process"},
        "small": {"model_capabilities": {"context_window": 900}},
    }
    handler = {"kind": "handler", "module": None, "payload": "typed:Said", "agent": True}
    keys["counts"] = {**handler, "handler": "typed:counts"}
    keys["asks"] = {**handler, "handler": "typed:asks", "peers": ["boss", "counts"]}
    agents |= {"counts": None, "asks": None}
    return offline_project(
        root, agents, SCRIPT, top={"bind": "127.0.0.1"}, keys=keys, files={"typed.py": HANDLERS}
    )


def _environment(state: Path) -> dict[str, str]:
    return {"PALLAS_DATABASE_URL": f"sqlite:///{state}/ledger.sqlite3", "PALLAS_LOG_LEVEL": "INFO"}


@pytest.mark.slow
@pytest.mark.parametrize("first", SURFACES)
async def test_a_thread_that_one_surface_began_goes_on_by_every_other(fleet: Served, first: str) -> None:
    # UN-1
    await fleet.says("running")
    answer, thread = await say(fleet, first, "hello", None)
    assert answer == "turn 1"
    ways = [way for way in SURFACES if way != first]
    for turn, way in enumerate(ways, 2):
        assert await say(fleet, way, f"by {way}", thread) == (f"turn {turn}", thread)
    kept = await rows(fleet, thread)
    assert [row["content"] for row in kept if row["role"] == "user"] == ["hello", *(f"by {w}" for w in ways)]
    assert [row["turnIndex"] for row in kept] == list(range(len(kept)))
    assert {row["status"] for row in kept} == {"complete"}
    async with rest(fleet) as api:
        runs = (await api.get("/runs", params={"thread": thread})).json()["items"]
    assert {run["surface"] for run in runs} == {"mcp", "rest", "agent-tool", "bridge"}
    assert {run["status"] for run in runs} == {"ok"}


@pytest.mark.slow
async def test_a_typed_handler_is_reached_by_every_surface_in_one_thread_and_by_another_handler(
    fleet: Served,
) -> None:
    # UN-1
    await fleet.says("running")
    answer, thread = await say(fleet, SURFACES[0], "hello", None, "counts")
    assert answer == "turn 1"
    for turn, way in enumerate(SURFACES[1:], 2):
        assert await say(fleet, way, f"by {way}", thread, "counts") == (f"turn {turn}", thread)
    printed = await typed("chat", "counts", "-m", "typed", "--thread", thread, "-p", str(fleet.root))
    assert printed.strip() == f"turn {len(SURFACES) + 1}"
    kept = await rows(fleet, thread)
    assert [row["role"] for row in kept] == ["user", "assistant"] * (len(SURFACES) + 1)
    assert {row["status"] for row in kept} == {"complete"}
    for way in SURFACES:
        # To an agent that is a model, in a thread of its own, and to a handler, within the run.
        assert (await say(fleet, way, f"hello by {way}", None, "asks"))[0] == "turn 1"
        assert (await say(fleet, way, "count", None, "asks"))[0] == "turn 1"
    async with rest(fleet) as api:
        runs = (await api.get("/runs", params={"agent": "boss", "limit": 200})).json()["items"]
    asked = [run for run in runs if run["surface"] == "handler"]
    assert len(asked) == len(SURFACES)
    assert {run["status"] for run in asked} == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_all_surfaces_talk_in_the_thread_of_an_open_session_which_hears_of_it(
    fleet: Served, era: str
) -> None:
    # UN-1
    await fleet.says("running")
    async with door(fleet, "/mcp", era) as client:
        session = (await tell(client, "sessions_create", agentId="boss"))["sessionId"]
        first = await tell(client, "sessions_prompt", sessionId=session, prompt="hello")
        thread = (await tell(client, "sessions_status", sessionId=session))["threadId"]
        assert first["text"] == "turn 1"
        for turn, way in enumerate(SURFACES):
            assert await say(fleet, way, f"by {way}", thread) == (f"turn {2 * turn + 2}", thread)
            said = await tell(client, "sessions_prompt", sessionId=session, prompt="and here")
            assert said["text"] == f"turn {2 * turn + 3}"
        printed = await typed("chat", "boss", "-m", "typed", "--thread", thread, "-p", str(fleet.root))
        assert printed.strip() == f"turn {2 * len(SURFACES) + 2}"
        task = await tell(
            client, "tasks_delegate", agentId="boss", prompt="a task", metadata={"threadId": thread}
        )
        assert task["text"] == f"turn {2 * len(SURFACES) + 3}"
        await tell(client, "sessions_close", sessionId=session)
    assert {row["status"] for row in await rows(fleet, thread)} == {"complete"}


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["boss", "far"])
async def test_what_the_tools_said_is_linked_to_what_was_asked_of_them(fleet: Served, agent: str) -> None:
    # AG-17
    await fleet.says("running")
    answer, thread = await say(fleet, "rest", "two tools", None, agent)
    assert answer == "the tools said so"
    kept = await rows(fleet, thread)
    assert [row["role"] for row in kept] == ["user", "assistant", "tool", "tool", "assistant"]
    calls = kept[1]["toolCalls"]
    assert [call["name"] for call in calls] == ["echo__echo", "echo__echo"]
    assert [call["arguments"] for call in calls] == [{"text": "one"}, {"text": "two"}]
    assert [row["toolCallId"] for row in kept[2:4]] == [call["id"] for call in calls]
    assert [row["content"] for row in kept[2:4]] == ["echo:one", "echo:two"]


@pytest.mark.slow
async def test_a_loop_ends_with_its_twelfth_round_and_its_turn_is_complete(fleet: Served) -> None:
    # AG-18
    await fleet.says("running")
    answer, thread = await say(fleet, "rest", "again and again", None)
    assert "the agent took 12 steps" in answer
    kept = await rows(fleet, thread)
    assert len([row for row in kept if row["role"] == "assistant" and row["toolCalls"]]) == 12
    assert {row["status"] for row in kept} == {"complete"}
    assert kept[-1]["role"] == "assistant"
    assert "the agent took 12 steps" in kept[-1]["content"]
    # The history that this leaves is one that a provider takes.
    assert (await say(fleet, "rest", "go on", thread))[0].startswith("turn ")


@pytest.mark.slow
async def test_a_long_conversation_is_told_by_a_summary_of_the_agents_own_model(fleet: Served) -> None:
    await fleet.says("running")
    thread = None
    for _ in range(4):
        answer, thread = await say(fleet, "rest", "word " * 150, thread, "small")
    assert thread is not None
    kept = await rows(fleet, thread)
    summaries = [row for row in kept if row["summary"]]
    assert summaries
    assert {row["role"] for row in summaries} == {"system"}
    assert all("earlier messages" in row["content"] for row in summaries)
    assert len([row for row in kept if row["role"] == "user"]) == 4, "people still see every row"
    # The model was shown less than was said: it counts the messages that it sees.
    assert int(answer.removeprefix("turn ")) < 4


@pytest.mark.slow
async def test_a_fleet_that_is_killed_in_the_middle_of_a_turn_goes_on_with_it(tmp_path: Path) -> None:
    # AG-6: what it took until then counts
    project, environment = _project(tmp_path / "p"), _environment(tmp_path)
    with served(project, log=tmp_path / "one.log", **environment) as first:
        await first.says("running")
        threads = {era: (await say(first, era, "hello", None))[1] for era in ERAS}
        async with AsyncExitStack() as asked:
            began = {era: await _until_in_a_tool(first, thread, asked) for era, thread in threads.items()}
            first.process.kill()
            await first.ended()

    with served(project, log=tmp_path / "two.log", **environment) as second:
        await second.says("running")
        for era, thread in threads.items():
            # The next turn comes after the one that goes on.
            assert await say(second, era, "and now?", thread) == ("turn 3", thread)
            kept = await rows(second, thread)
            assert [row["status"] for row in kept] == ["complete"] * 8, era
            assert "outcome unknown" in kept[4]["content"]
            assert kept[5]["content"] == "the tools said so"
            async with rest(second) as api:
                runs = (await api.get("/runs", params={"thread": thread})).json()["items"]
            run = began[era]
            (killed,) = (each for each in runs if each["id"] == run["id"])
            assert killed["status"] == "ok"
            assert killed["seconds"] >= run["seconds"] > 0
            assert (killed["steps"], killed["tools"]) == (run["steps"] + 1, 1)
            assert run["steps"]
        await second.logs("runs that another fleet left unfinished: 2 continued here")


async def _until_in_a_tool(fleet: Served, thread: str, asked: AsyncExitStack) -> dict[str, Any]:
    """A turn that waits in its tool, and is kept so; what its run took until then."""
    api = await asked.enter_async_context(rest(fleet))
    body = {"message": "wait for it", "threadId": thread, "stream": True}
    stream = await asked.enter_async_context(api.stream("POST", "/agents/boss/chat", json=body))
    async for line in stream.aiter_lines():
        if '"tool_call"' in line:
            break
    # Callers hear of what is said at once, and the ledger behind the run.
    pending = await poll(lambda: rows(fleet, thread), lambda found: len(found) >= 4, timeout=30)

    async def began() -> dict[str, Any]:
        run: dict[str, Any] = (await api.get(f"/runs/{pending[2]['runId']}")).json()
        return run

    run = await poll(began, lambda found: found["tools"], timeout=30)  # behind the run as well
    assert [row["status"] for row in pending] == ["complete", "complete", "pending", "pending"]
    return run


@pytest.mark.parametrize("text", ["", " \n"])
@pytest.mark.parametrize("agent", ["boss", "counts"])
async def test_an_empty_message_is_refused_alike_by_every_surface(
    fleet: Served, agent: str, text: str
) -> None:
    # UN-1
    await fleet.says("running")
    _, thread = await say(fleet, ERAS[0], "hello", None, agent)
    told = {}
    for era in ERAS:
        async with fleet.client(agent, era) as client:
            arguments = {"message": text, "conversation_id": thread}
            told[era] = fault_in(await client.call_tool("send_message", arguments))
        async with door(fleet, "/mcp", era) as client:
            session = (await tell(client, "sessions_create", agentId=agent))["sessionId"]
            asked = {"sessionId": session, "prompt": text}
            told[f"bridge {era}"] = fault_in(await client.call_tool("sessions_prompt", asked))
            asked = {"agentId": agent, "prompt": text}
            told[f"delegate {era}"] = fault_in(await client.call_tool("tasks_delegate", asked))
            await tell(client, "sessions_close", sessionId=session)
    async with door(fleet, "/projects/test/mcp") as client:
        asked = {"message": text, "threadId": thread}
        told["tool"] = fault_in(await client.call_tool(f"agent-{agent}__chat", asked))
    task = await TaskClient(fleet.url(agent)).call(message=text)
    if not task.get("isError"):
        task = (await TaskClient(fleet.url(agent)).until(task["taskId"]))["result"]
    told["task"] = json.loads(task["content"][0]["text"])
    async with rest(fleet) as api:
        for stream in (True, False):
            answer = await api.post(f"/agents/{agent}/chat", json={"message": text, "stream": stream})
            assert answer.status_code == 400
            told[f"rest {stream}"] = answer.json()
    for fault in told.values():
        kept = {name: fault["data"].get(name) for name in ("type", "retryable", "key")}
        assert (fault["error"], fault["code"], kept) == (
            "message: is empty; write something, or attach an image",
            -32000,
            {"type": "PROTOCOL", "retryable": False, "key": "message"},
        )
    assert len(await rows(fleet, thread)) == 2
