"""Output schemas of a server cost one call at most, never the fleet."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hostile_servers import MEMORY, call, hostile_project
from support.live import ERAS
from support.providers import provider
from support.served import Served, served, text_of

LONGEST = 120.0
"""Seconds after which a fleet counts as frozen."""
SOONER = {"pallas.bounds.tool_results.CHECK_SECONDS": 0.5}
PATIENT = {f"pallas.bounds.tool_results.{name}": 60.0 for name in ("CHECK_SECONDS", "PATTERN_SECONDS")}

EVIL = "^(a+)+$"
WORD = "a" * 60 + "!"


def structured(schema: dict[str, Any], value: str) -> dict[str, Any]:
    """A tool whose result has ``value``, a Python expression, as its structured content."""
    return {"schema": schema, "do": f"text('x', structuredContent={value})"}


def nested(depth: int, word: str) -> dict[str, Any]:
    """A schema of ``2 ** depth`` checks in ``depth`` definitions."""
    named = {
        f"d{number}": {word: [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/d{number + 1}"}]}
        for number in range(depth)
    }
    return {"type": "object", "$defs": {**named, f"d{depth}": {}}, "$ref": "#/$defs/d0"}


COSTLY = {
    "pattern": structured(
        {"type": "object", "properties": {"v": {"type": "string", "pattern": EVIL}}}, repr({"v": WORD})
    ),
    "names": structured({"type": "object", "patternProperties": {EVIL: {}}}, repr({WORD: 1})),
    "additional": structured(
        {"type": "object", "patternProperties": {EVIL: {}}, "additionalProperties": False}, repr({WORD: 1})
    ),
    "all_of": structured(nested(40, "allOf"), "{}"),
    "any_of": structured({**nested(40, "anyOf"), "not": {"$ref": "#/$defs/d0"}}, "{}"),
    "one_of": structured(nested(40, "oneOf"), "{}"),
    "circle": structured({"type": "object", "$ref": "#"}, "{}"),
    "unique": structured(
        {"type": "object", "properties": {"v": {"uniqueItems": True}}},
        "{'v': [{'a': i} for i in range(20000)]}",
    ),
    "unevaluated": structured({**nested(40, "allOf"), "unevaluatedProperties": False}, "{'a': 1}"),
    "choices": structured(
        {"type": "object", "properties": {"v": {"items": {"enum": list(range(20_000))}}}},
        "{'v': [-1 - i for i in range(20000)]}",
    ),
    "program": structured({"type": "object", "properties": {"v": {"pattern": "((a{1,999}){1,999}){1,999}"}}},
                          "{'v': 'b'}"),
}  # fmt: skip
PLAIN = {
    "fits": structured({"type": "object", "properties": {"v": {"pattern": "^a+$"}}}, "{'v': 'aaa'}"),
    "wrong": structured({"type": "object", "properties": {"v": {"type": "integer"}}}, "{'v': 'aaa'}"),
    "many": structured(
        {"type": "object", "properties": {"v": {"items": {"type": "object", "properties": {
            "a": {"type": "integer"}, "b": {"type": "string", "pattern": "^x"}}}}}},
        "{'v': [{'a': i, 'b': 'x'} for i in range(500)]}",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A fleet whose ``victim`` has a server with the costly tools."""
    root = hostile_project(tmp_path_factory.mktemp("costly") / "p", COSTLY)
    with served(root, memory=MEMORY, constants=SOONER) as fleet:
        asyncio.run(fleet.says("] running"))
        yield fleet


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A fleet whose ``victim`` has a server with the plain tools, and a minute for each check."""
    root = hostile_project(tmp_path_factory.mktemp("plain") / "p", PLAIN)
    with served(root, memory=MEMORY, constants=PATIENT) as fleet:
        asyncio.run(fleet.says("] running"))
        yield fleet


async def alive(fleet: Served) -> None:
    """The other agent answers, and the fleet says that it is well."""
    async with asyncio.timeout(LONGEST), fleet.client("other", ERAS[0]) as other:
        assert text_of(await other.call_tool("send_message", {"message": "hi"})) == "hi"
    assert (await fleet.get("/healthz")).status_code == 200


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("tool", COSTLY)
async def test_a_costly_schema_costs_its_own_call_alone(fleet: Served, tool: str, era: str) -> None:
    async with asyncio.timeout(LONGEST), fleet.client("victim", era) as victim:
        await victim.call_tool("send_message", {"message": call(tool)})
    await alive(fleet)


@pytest.mark.parametrize("era", ERAS)
async def test_a_result_that_fits_is_given_and_one_that_does_not_is_refused(
    patient: Served, era: str
) -> None:
    async with asyncio.timeout(LONGEST), patient.client("victim", era) as victim:
        said = {
            tool: text_of(await victim.call_tool("send_message", {"message": call(tool)})) for tool in PLAIN
        }
    assert "aaa" in said["fits"], said
    assert "nvalid structured content" in said["wrong"], said
    assert "499" in said["many"], said


BOMBS: dict[str, Any] = {
    "unfolds": {"input": nested(40, "allOf"), "do": "text('x')"},
    "circle": {
        "input": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/n"}, "all": {"$ref": "#"}},
            "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}},
        },
        "do": "text('x')",
    },
    "plain": {
        "input": {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"type": "integer"}},
        },
        "do": "text('x')",
    },
}


@pytest.mark.slow
async def test_references_in_an_input_schema_are_not_unfolded_without_end(tmp_path: Path) -> None:
    # Gemini takes no references: its library's caller writes out what they refer to.
    model = "google.gemini-2.5-flash"
    async with provider() as behind:
        root = hostile_project(tmp_path / "p", BOMBS, model=model, settings=behind.config(model))
        with served(root, memory=MEMORY, constants=SOONER) as fleet:
            await fleet.says("] running")
            for era in ERAS:
                async with asyncio.timeout(LONGEST), fleet.client("victim", era) as victim:
                    said = await victim.call_tool("send_message", {"message": "hi"})
                assert text_of(said) == "ok"
            await alive(fleet)
        shown = json.dumps(behind.asked[-1].body["tools"])
    assert all(f"hostile__{tool}" in shown for tool in BOMBS)
    assert "$ref" not in shown
    assert "INTEGER" in shown.upper()
