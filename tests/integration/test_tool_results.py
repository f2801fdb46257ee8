"""Results of tools with all kinds of content: the model reads what it gets, and what it cannot get."""

import base64
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from support.hostile_servers import PROGRAM
from support.live import agent_module, ask, client, running, write_project
from support.providers import MODELS, Asked, Provider, Reply, provider

from pallas.fleet.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="module")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def blob(kind: str, data: str, uri: str = "mem://r/file") -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "blob": data}}


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


LINK = {
    "type": "resource_link",
    "uri": "mem://r/report",
    "name": "report",
    "mimeType": "application/x-report",
    "size": 1234,
    "description": "of the year",
}
RESULTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "failed": ({"content": [], "isError": True}, ("failed", "did not say why")),
    "failed_empty": ({"content": [text("")], "isError": True}, ("failed", "did not say why")),
    "failed_words": ({"content": [text("no such row")], "isError": True}, ("no such row",)),
    "csv": ({"content": [blob("text/csv; charset=utf-8", coded("a;1"))]}, ("mem://r/file", "a;1")),
    "json_file": ({"content": [blob("application/geo+json", coded('{"b": 2}'))]}, ('{"b": 2}',)),
    "no_base64": ({"content": [blob("text/csv", "größe")]}, ("Left out", "text/csv")),
    "no_text": ({"content": [blob("text/plain", "/////w==")]}, ("Left out", "text/plain", "4 bytes")),
    "archive": (
        {"content": [text("see"), blob("application/zip", coded("x" * 30))]},
        ("see", "application/zip", "30 bytes"),
    ),
    "text_file": (
        {
            "content": [
                {
                    "type": "resource",
                    "resource": {"uri": "mem://r/n", "mimeType": "text/plain", "text": "words"},
                }
            ]
        },
        ("mem://r/n", "words"),
    ),
    "link": (
        {"content": [LINK]},
        ("report", "mem://r/report", "application/x-report", "1,234 bytes", "of the year"),
    ),
    "beside": (
        {"content": [text("two rows")], "structuredContent": {"rows": 2}},
        ("two rows", '{"rows": 2}'),
    ),
    "structured": ({"content": [text('{"rows": 3}')], "structuredContent": {"rows": 3}}, ("rows", "3")),
    "alone": ({"content": [], "structuredContent": {"rows": 4}}, ("rows", "4")),
    "sound": (
        {"content": [text("listen"), {"type": "audio", "mimeType": "audio/x-odd", "data": coded("y" * 30)}]},
        ("listen", "audio/x-odd", "30 bytes"),
    ),
}
PICTURE = {"content": [text("look"), {"type": "image", "mimeType": "image/png", "data": PIXEL}]}


def messages_of(asked: Asked) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked.body.get(
        "messages", asked.body.get("input", asked.body.get("contents"))
    )
    return found


def model(asked: Asked) -> Reply:
    """Call the tool that the user names, then say that it is done."""
    said = json.dumps(messages_of(asked))
    has_result = any(
        word in said for word in ('"tool"', "tool_result", "function_call_output", "functionResponse")
    )
    wanted = re.search(r"call (\w+)", said)
    return Reply("done") if has_result or wanted is None else Reply(calls=[(f"odd__{wanted[1]}", {})])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Fleet, Provider]]:
    async with provider(model) as behind:
        settings: dict[str, Any] = {}
        for name in MODELS.values():
            settings |= behind.config(name)
        results = {name: result for name, (result, _) in RESULTS.items()} | {"picture": PICTURE}
        tools = {
            name: {"do": f"send({{'id': number, 'result': json.loads({json.dumps(result)!r})}})"}
            for name, result in results.items()
        }
        root = write_project(
            tmp_path_factory.mktemp("results"),
            {name: agent_module(name, ("odd",), model=each) for name, each in MODELS.items()},
            config={**settings, "mcp": {"servers": {"odd": {"command": "python", "args": ["odd.py"]}}}},
            files={"odd.py": PROGRAM, "tools.json": json.dumps(tools)},
        )
        async with running(root) as fleet:
            yield fleet, behind


async def told(served: tuple[Fleet, Provider], agent: str, tool: str) -> str:
    """The texts that a model is sent after a call of that tool."""
    fleet, behind = served
    async with client(fleet, agent) as connected:
        assert await ask(connected, f"call {tool}") == "done"
    messages = messages_of(behind.asked[-1])
    assert [
        each for each in messages if each.get("role") in ("user", "tool") and each.get("content") == ""
    ] == []
    return json.dumps(messages, ensure_ascii=False).replace('\\\\"', '"').replace('\\"', '"')


@pytest.mark.slow
@pytest.mark.parametrize("agent", MODELS)
async def test_nothing_of_a_result_disappears(served: tuple[Fleet, Provider], agent: str) -> None:
    for tool, (_, words) in RESULTS.items():
        shown = await told(served, agent, tool)
        assert [word for word in words if word not in shown] == [], (tool, shown)
        assert "completed successfully" not in shown, tool


@pytest.mark.parametrize("tool", ["failed", "csv", "link", "beside"])
async def test_a_model_reads_what_a_tool_answered(served: tuple[Fleet, Provider], tool: str) -> None:
    shown = await told(served, "chat", tool)
    assert [word for word in RESULTS[tool][1] if word not in shown] == []


@pytest.mark.parametrize("agent", ["chat", "openai", "messages"])
async def test_a_picture_beside_text_is_sent_or_named(served: tuple[Fleet, Provider], agent: str) -> None:
    shown = await told(served, agent, "picture")
    assert "look" in shown
    is_named = re.search(r"Left out: a picture, image/png, [0-9]+ bytes; this model does not take it", shown)
    assert (PIXEL in shown) != bool(is_named)
