"""Agents that call agents, tools at once, text while it is written, and pictures: over real MCP."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.live import ECHO, ERAS, MODERN_FIRST, agent_module, client, module_fleet, write_project
from support.ports import free_ports

from pallas.fleet.fleet import Fleet
from pallas.model import StepStarted, ToolEvent
from pallas.scripted.scripted_server import record_of

SCRIPT = """
rules:
  - when: {last: user, system: coordinator, text: both}
    say: "Let me ask around."
    call:
      - {tool: helper__send_message, arguments: {message: "use your tool"}}
      - {tool: echo__echo, arguments: {text: "side"}}
  - when: {last: user, system: coordinator, text: twice}
    call:
      - {tool: echo__echo, arguments: {text: "one"}}
      - {tool: echo__echo, arguments: {text: "two"}}
  - when: {last: tool, system: coordinator}
    say: "Everything is known now, word by word by word."
    pace: 0.02
  - when: {last: user, system: helper}
    call: [{tool: echo__echo, arguments: {text: "deep"}}]
  - when: {last: tool, system: helper}
    say: "helper got {{ result }}"
  - when: {last: user, images: true}
    say: "I see {{ image.count }} picture, {{ image.width }}x{{ image.height }}"
  - when: {last: user}
    say: "plain"
"""
LINES = re.compile(r"^([^/]+)/(.+): (started|completed|failed)$|^(\S+) step (\d+) \((llm|tool)\)$")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)


@module_fleet()
def fleet(folder: Path) -> Path:
    (port,) = free_ports(1)
    root = write_project(
        folder,
        {
            "boss": agent_module("boss", ("helper", "echo")).replace(
                "You are boss.", "You are the coordinator."
            ),
            "helper": agent_module("helper", ("echo",)),
            "eyes": agent_module("eyes", model="generic.scripted-eyes"),
        },
        keys={"boss": {"depends_on": ["helper"]}, "eyes": {"model_capabilities": {"vision": True}}},
        top={"scripted": {"script": "model.yaml", "port": port}},
        files={"model.yaml": SCRIPT},
    )
    helper = yaml.safe_load((root / "agents.yaml").read_text())["agents"]["helper"]["port"]
    url = f"http://127.0.0.1:{helper}/mcp"
    settings: dict[str, Any] = {
        "default_model": "generic.scripted",
        "generic": {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "offline"},
        "mcp": {"servers": {**ECHO["mcp"]["servers"], "helper": {"url": url, "auth": {"oauth": False}}}},
    }
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
    return root


Seen = list[tuple[float, float | None, str]]


async def _ask(fleet: Fleet, era: str, arguments: dict[str, Any], **options: Any) -> tuple[Any, Seen]:
    seen: Seen = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message or ""))

    async with client(fleet, "boss", era=era) as boss:
        result = await boss.call_tool("send_message", arguments, progress_callback=progress, **options)
        at_result = len(seen)
        assert not result.is_error, result
        # A second call on the same connection: whatever was late would have come before its answer.
        await boss.call_tool("get_health", {})
        assert len(seen) == at_result
    return result, seen


@both_eras
async def test_parallel_calls_and_a_sub_agent_share_one_strictly_growing_counter(
    fleet: Fleet, era: str
) -> None:
    # PI-21, PI-23, PI-24
    _, seen = await _ask(fleet, era, {"message": "ask both"})
    assert [progress for progress, _, _ in seen] == [float(n) for n in range(1, len(seen) + 1)]
    for progress, total, message in seen:
        assert LINES.match(message)
        assert total == (progress if message.endswith((": completed", ": failed")) else None)
    lines = [message for _, _, message in seen]
    for label in ("helper/send_message", "echo/echo"):
        assert f"{label}: started" in lines
        assert f"{label}: completed" in lines
    # The sub-agent's own steps and tool calls come through, unprefixed, as the contract's trace shows.
    assert "helper step 1 (llm)" in lines
    assert "helper step 2 (tool)" in lines
    assert lines.count("echo/echo: completed") == 2


@both_eras
async def test_two_calls_of_one_tool_at_once_both_complete(fleet: Fleet, era: str) -> None:
    # PI-19, PI-23
    _, seen = await _ask(fleet, era, {"message": "ask twice"})
    lines = [message for _, _, message in seen]
    assert lines.count("echo/echo: started") == lines.count("echo/echo: completed") == 2


@both_eras
async def test_text_before_tool_calls_is_in_the_result_and_the_answer_is_marked(
    fleet: Fleet, era: str
) -> None:
    # PI-26
    result, seen = await _ask(fleet, era, {"message": "ask both"})
    text = result.content[0].text
    assert text == "Let me ask around.\n\nEverything is known now, word by word by word."
    offset = result.meta["local.pallas/finalOffset"]
    assert text[offset:].startswith("Everything is known")
    assert not any(" » " in message for _, _, message in seen)


@both_eras
@pytest.mark.parametrize("by", ["argument", "meta"])
async def test_text_streams_to_a_caller_that_asks(fleet: Fleet, era: str, by: str) -> None:
    # PI-21, PI-26
    arguments: dict[str, Any] = {"message": "ask both"}
    options: dict[str, Any] = {}
    if by == "argument":
        arguments["stream_text"] = True
    else:
        options["meta"] = {"local.pallas/streamText": True}
    _, seen = await _ask(fleet, era, arguments, **options)
    pieces = [message.removeprefix("boss » ") for _, _, message in seen if message.startswith("boss » ")]
    text = "".join(pieces)
    assert text == "Let me ask around.Everything is known now, word by word by word."
    assert len(pieces) > 2
    assert [progress for progress, _, _ in seen] == [float(n) for n in range(1, len(seen) + 1)]
    assert all(total is None for _, total, message in seen if " » " in message)


@both_eras
async def test_text_of_a_sub_agent_streams_under_its_own_name_to_whoever_asked(
    fleet: Fleet, era: str
) -> None:
    # PI-26
    _, seen = await _ask(fleet, era, {"message": "ask both", "stream_text": True})
    lines = [message for _, _, message in seen]
    pieces = [line.removeprefix("helper » ") for line in lines if line.startswith("helper » ")]
    assert "".join(pieces) == 'helper got {"result":"echo:deep"}'
    assert "helper" not in "".join(line for line in lines if line.startswith("boss » "))
    _, unasked = await _ask(fleet, era, {"message": "ask both"})
    assert not any(" » " in message for _, _, message in unasked)


async def test_nested_calls_are_events_of_the_run_that_asked(fleet: Fleet) -> None:
    before = fleet.hub.seq
    result, _ = await _ask(fleet, ERAS[0], {"message": "ask both"})
    run_id = result.meta["local.pallas/runId"]
    events = [event for event in fleet.hub.since(before).events if getattr(event, "run_id", "") == run_id]
    nested = [event for event in events if isinstance(event, ToolEvent) and event.nested]
    assert [(event.server, event.tool, event.phase) for event in nested] == [
        ("echo", "echo", "started"),
        ("echo", "echo", "completed"),
    ]
    assert nested[0].call_id == nested[1].call_id
    assert {event.actor for event in events if isinstance(event, StepStarted)} == {"boss", "helper"}


@both_eras
async def test_pictures_reach_the_model_as_text_and_image_parts(fleet: Fleet, era: str) -> None:
    # PR-17
    async with client(fleet, "eyes", era=era) as eyes:
        result = await eyes.call_tool(
            "send_message", {"message": "what is it?", "images": [{"data": PIXEL, "mime_type": "image/png"}]}
        )
        assert result.content[0].text == "I see 1 picture, 1x1"  # type: ignore[union-attr]
    assert fleet.surfaces.offline_model.server is not None
    last = record_of(fleet.surfaces.offline_model.server).requests[-1]["messages"][-1]
    assert [part["type"] for part in last["content"]] == ["text", "image_url"]
    assert last["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PIXEL}"


async def test_only_the_agent_with_vision_says_so(fleet: Fleet) -> None:
    # PR-13
    found = {agent.name: (agent.model, agent.vision) for agent in fleet.snapshot().agents}
    assert found == {
        "boss": ("scripted", False),
        "helper": ("scripted", False),
        "eyes": ("scripted-eyes", True),
    }


async def test_health_checks_ask_no_model(fleet: Fleet) -> None:
    # PI-9
    assert fleet.surfaces.offline_model.server is not None
    before = record_of(fleet.surfaces.offline_model.server).calls
    async with client(fleet, "boss") as boss:
        for _ in range(5):
            await boss.call_tool("get_health", {})
    assert record_of(fleet.surfaces.offline_model.server).calls == before


async def test_tokens_steps_and_tools_are_told_with_the_result(fleet: Fleet) -> None:
    result, _ = await _ask(fleet, ERAS[0], {"message": "ask both"})
    assert result.meta["local.pallas/tools"] == 2
    assert result.meta["local.pallas/steps"] == 3
    assert result.meta["local.pallas/usage"]["inputTokens"] > 0
    assert result.meta["local.pallas/usage"]["outputTokens"] > 0
