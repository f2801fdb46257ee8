"""An agent with tools to look at and to call, for tests of the screens."""

import json
from typing import Any

from pallas.model import (
    AgentDetail,
    ContextBill,
    ContextPart,
    ServerDetail,
    ToolChanges,
    ToolDetail,
    ToolOutcome,
)

from .fake_fleet import NOON, FakeFleet

SEARCH: dict[str, Any] = {
    "type": "object",
    "required": ["query", "limit"],
    "properties": {
        "query": {"type": "string", "description": "What to look for.", "minLength": 2},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
        "kind": {"anyOf": [{"enum": ["page", "image", "code"]}, {"type": "null"}]},
        "exact": {"type": "boolean"},
        "note": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "range": {"type": "object", "properties": {"from": {"type": "string", "format": "date"}}},
        "where": {
            "oneOf": [
                {
                    "title": "By path",
                    "type": "object",
                    "properties": {"path": {"type": "string"}},
                    "required": ["path"],
                },
                {
                    "title": "By id",
                    "type": "object",
                    "properties": {"id": {"type": "integer"}},
                    "required": ["id"],
                },
            ]
        },
    },
}


BILL = ContextBill(
    total=3_412,
    parts=(
        ContextPart("instruction", 212),
        ContextPart("tools", 2_600, "docs"),
        ContextPart("agent", 96, "billing"),
        ContextPart("history", 246),
        ContextPart("images", 258),
    ),
    window=131_072,
    model="qwen3",
)
"""What an agent's last request took of its window."""


def tool(name: str, schema: Any = None, **fields: str) -> ToolDetail:
    """A tool with that input schema."""
    return ToolDetail(name, input_schema=json.dumps(schema or {}), **fields)


def detail(*servers: ServerDetail, name: str = "research") -> AgentDetail:
    """What a fleet knows of an agent; without servers three: its own, one that changed, one that is shut."""
    own = tool(
        name,
        {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]},
        title="Research",
        description="Ask the research agent",
    )
    search = tool("search", SEARCH, title="Search", description="Search the documents")
    changes = ToolChanges(("search",), ("old",), ("fetch",), NOON - 3600)
    return AgentDetail(
        name,
        "agents.yaml:12",
        "agents/research.py:8",
        "You look things up.\nBe brief.",
        '{"name": "x/research", "version": "1.0"}',
        servers
        or (
            ServerDetail("", (own,)),
            ServerDetail("docs", (search, tool("fetch", description="Fetch one")), changes),
            ServerDetail("vault", problem="401: a credential is asked for"),
        ),
    )


def fleet_with_tools() -> FakeFleet:
    """The desk, whose research agent can be looked at."""
    fleet = FakeFleet()
    fleet.change(
        "research",
        source="agents.yaml:12",
        latency_p50=0.9,
        latency_p95=3.1,
        last_latency=1.2,
        tokens_in=12_345,
        tokens_out=999,
        runs_total=41,
        restarts=1,
    )
    fleet.details["research"] = detail()
    content = {"content": [{"type": "text", "text": "two\nlines"}], "big": 9_007_199_254_740_993}
    fleet.outcome = ToolOutcome(True, json.dumps(content), 0.42, ("two\nlines",))
    return fleet
