"""Ordinary JSON Schemas of a server's tools: each provider gets what it takes, and no tool is lost."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio
from support.hostile_servers import PROGRAM
from support.live import agent_module, ask, client, running, write_project
from support.providers import Asked, Provider, provider
from support.schema_rules import anthropic_refusals, google_refusals, openai_refusals

from pallas.fleet.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="module")


def shape(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"input": {"type": "object", "properties": properties, **more}, "do": "text('x')"}


TOOLS: dict[str, Any] = {
    "plain": shape({"q": {"type": "string"}}, required=["q"]),
    "nothing": {"input": {"type": "object"}, "do": "text('x')"},
    "optional": shape(
        {"q": {"type": ["string", "null"]}, "r": {"anyOf": [{"type": "null"}, {"type": "integer"}]}}
    ),
    "any": shape({"v": True, "w": {}}),
    "never": shape({"v": False, "q": {"type": "string"}}),
    "numbers": shape(
        {"n": {"type": "integer", "enum": [1, 2, 5]}, "c": {"const": 3}, "m": {"enum": [1, "a", None]}}
    ),
    "above": shape({"e": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 5}}),
    "pair": shape(
        {"p": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False}}
    ),
    "tuple": shape({"p": {"type": "array", "items": [{"type": "number"}]}, "l": {"type": "array"}}),
    "map": shape(
        {"m": {"type": "object", "additionalProperties": {"type": "string"}}}, patternProperties={"^x": {}}
    ),
    "dialect": shape(
        {
            "q": {"type": "string", "required": True},
            "n": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        },
        **{"$schema": "http://json-schema.org/draft-04/schema#"},
    ),
    "either": shape(
        {"a": {"type": "string"}, "b": {"type": "string"}}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]
    ),
    "united": shape(
        {}, oneOf=[{"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "number"}}}]
    ),
    "parts": shape(
        {"a": {"type": "string"}}, allOf=[{"properties": {"b": {"type": "number"}}, "required": ["b"]}]
    ),
    "refers": shape(
        {"d": {"$ref": "#/$defs/day", "description": "when"}, "t": {"$ref": "#/$defs/tree"}},
        **{
            "$defs": {
                "day": {"type": "string", "format": "date"},
                "tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}},
            }
        },
    ),
    "names": shape({"a b": {"type": "string"}, "$filter": {"type": "string"}, "q": {"type": "string"}}),
    "strict": shape({"q": {"type": "string"}}, additionalProperties=False, required=["q", "gone"]),
}
MODELS = {
    "chat": "openai.gpt-4o",
    "responses": "responses.gpt-5",
    "messages": "anthropic.claude-haiku-5-5",
    "gemini": "google.gemini-2.5-flash",
}
REFUSALS: dict[str, Callable[[Any], Iterator[str]]] = {
    "chat": openai_refusals,
    "responses": openai_refusals,
    "messages": anthropic_refusals,
    "gemini": google_refusals,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Fleet, Provider]]:
    async with provider() as behind:
        settings: dict[str, Any] = {}
        for model in MODELS.values():
            settings |= behind.config(model)
        tools = {**TOOLS, "needs": shape({"a b": {"type": "string"}}, required=["a b"])}
        root = write_project(
            tmp_path_factory.mktemp("schemas"),
            {name: agent_module(name, ("odd",), model=model) for name, model in MODELS.items()},
            config={**settings, "mcp": {"servers": {"odd": {"command": "python", "args": ["odd.py"]}}}},
            files={"odd.py": PROGRAM, "tools.json": json.dumps(tools)},
        )
        async with running(root) as fleet:
            yield fleet, behind


def _camel(key: re.Match[str]) -> str:
    return f'"{key[1]}{key[2].capitalize()}":'


def schemas(asked: Asked) -> dict[str, Any]:
    """The schema of each tool of a request, by the server's own name."""
    found = {}
    for tool in asked.body["tools"]:
        for each in tool.get("functionDeclarations", [tool.get("function", tool)]):
            schema = each.get("parameters", each.get("input_schema"))
            if asked.kind == "google":  # JSON of protocol buffers has keys in both spellings
                schema = json.loads(re.sub(r'"(\w+)_(\w+)":', _camel, json.dumps(schema)))
            found[each["name"].removeprefix("odd__")] = schema
    return found


@pytest.mark.parametrize("agent", MODELS)
async def test_a_request_has_every_tool_with_a_schema_that_the_provider_takes(
    served: tuple[Fleet, Provider], agent: str
) -> None:
    fleet, behind = served
    async with client(fleet, agent) as connected:
        assert await ask(connected, "hi") == "ok"
    shown = schemas(behind.asked[-1])
    # A required property whose name the Messages API refuses: that tool alone is left out.
    assert shown.keys() == TOOLS.keys() | ({"needs"} if agent != "messages" else set())
    refused = {name: found for name, each in shown.items() if (found := list(REFUSALS[agent](each)))}
    assert refused == {}


async def test_what_a_provider_takes_is_sent_as_it_is(served: tuple[Fleet, Provider]) -> None:
    fleet, behind = served
    for agent in ("chat", "messages"):
        async with client(fleet, agent) as connected:
            await ask(connected, "hi")
        shown = schemas(behind.asked[-1])
        for name in ("plain", "above", "map", "refers"):
            assert shown[name] == TOOLS[name]["input"]
        assert shown["either"]["description"] == "Give at least one of: a; b."
        assert shown["parts"]["properties"] == {"a": {"type": "string"}, "b": {"type": "number"}}
        assert shown["parts"]["required"] == ["b"]


async def test_gemini_gets_what_its_schemas_can_say(served: tuple[Fleet, Provider]) -> None:
    fleet, behind = served
    async with client(fleet, "gemini") as connected:
        await ask(connected, "hi")
    shown = {name: each.get("properties") for name, each in schemas(behind.asked[-1]).items()}
    assert shown["optional"] == {
        "q": {"type": "STRING", "nullable": True},
        "r": {"type": "INTEGER", "nullable": True},
    }
    assert shown["numbers"]["n"] == {
        "type": "INTEGER",
        "minimum": 1,
        "maximum": 5,
        "description": "one of 1, 2, 5",
    }
    assert shown["pair"]["p"]["items"] == {"anyOf": [{"type": "NUMBER"}, {"type": "STRING"}]}
    assert shown["refers"]["d"] == {"type": "STRING", "description": "when"}
    assert shown["never"].keys() == {"q"}
