"""Whatever a server answers: the SDK accepts what is made of it, or there is a reason why nothing is."""

import asyncio
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from support.properties import examples
from support.sdk_answers import accepted

from pallas.downstreams.result_fit import MAX_FINDINGS
from pallas.downstreams.usable_results import UsableResult, usable_result
from pallas.safe_text import sanitize

_META = {"a/b": 1}
_ICONS = [{"src": "data:,", "sizes": ["any"], "theme": "dark"}]
_HINTS = {"audience": ["user"], "priority": 0.5}
_BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "a", "annotations": _HINTS, "_meta": _META},
    {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    {"type": "resource_link", "uri": "mem://a", "name": "a", "size": 3, "icons": _ICONS},
    {"type": "resource", "resource": {"uri": "mem://a", "mimeType": "text/plain", "text": "a"}},
    {"type": "resource", "resource": {"uri": "mem://a", "blob": "AAAA"}},
]
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}, "b": True}, "required": ["a"]}
_RESOURCE = {"name": "a", "uri": "mem://a", "mimeType": "text/plain", "size": 1, "annotations": _HINTS}
_CAPABILITIES = {
    "tools": {"listChanged": True},
    "prompts": {},
    "resources": {"subscribe": True},
    "logging": {},
    "experimental": {"a": {"b": 1}},
}
VALID: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": _CAPABILITIES,
        "serverInfo": {"name": "a", "version": "1", "icons": _ICONS},
        "instructions": "a",
    },
    "server/discover": {
        "supportedVersions": ["2026-07-28"],
        "capabilities": _CAPABILITIES,
        "instructions": "a",
    },
    "tools/list": {
        "tools": [
            {"name": "a", "description": "a", "inputSchema": _SCHEMA, "icons": _ICONS, "_meta": _META},
            {
                "name": "b",
                "inputSchema": {"type": "object"},
                "annotations": {"title": "b", "readOnlyHint": True},
            },
            {"name": "c", "inputSchema": {"type": "object", "anyOf": [{"required": ["a"]}]}, "title": "c"},
        ],
        "nextCursor": "2",
    },
    "prompts/list": {
        "prompts": [
            {"name": "a", "arguments": [{"name": "b", "required": True}]},
            {"name": "c", "icons": _ICONS},
        ]
    },
    "resources/list": {"resources": [_RESOURCE, {"name": "b", "uri": "mem://b"}], "nextCursor": None},
    "resources/templates/list": {"resourceTemplates": [{"name": "a", "uriTemplate": "mem://{a}"}]},
    "tools/call": {"content": _BLOCKS, "structuredContent": {"a": [1]}, "isError": False, "_meta": _META},
    "prompts/get": {
        "description": "a",
        "messages": [{"role": "assistant", "content": each} for each in _BLOCKS],
    },
    "resources/read": {
        "contents": [{"uri": "mem://a", "text": "a"}, {"uri": "mem://b", "mimeType": "a/b", "blob": "AAAA"}]
    },
    "completion/complete": {"completion": {"values": ["a"], "total": 1, "hasMore": False}},
    "ping": {},
}
_CACHED = {"ttlMs": 5, "cacheScope": "public"}
_EVERY = [(method, version) for method in VALID for version in KNOWN_PROTOCOL_VERSIONS[::2]]

_NAMES = (
    "name uri type text resource role content inputSchema outputSchema resultType ttlMs cacheScope "
    "requestState inputRequests properties x-mcp-header"
)
_KEYS = st.sampled_from(sorted({*_NAMES.split(), *(key for each in VALID.values() for key in each)}))
_WORDS = st.sampled_from(
    ["object", "text", "image", "resource", "input_required", "complete", "true", "\ud800", ""]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _WORDS | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(_KEYS | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)


def valid(method: str, version: str) -> dict[str, Any]:
    """A valid result of the method at that version."""
    made = deepcopy(VALID[method])
    if version == "2026-07-28" and method not in ("initialize", "ping"):
        made["resultType"] = "complete"
        made |= {} if method in ("tools/call", "prompts/get", "completion/complete") else _CACHED
    return made


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in pairs for found in _places(each, (*path, key)))]


@st.composite
def _spoilt(draw: st.DrawFn) -> tuple[str, str, Any]:
    """A valid result with one to four places taken out, replaced or put in."""
    method, version = draw(st.sampled_from(_EVERY))
    whole = {"": valid(method, version)}
    for _ in range(draw(st.integers(1, 4))):
        *way, last = draw(st.sampled_from([path for path in _places(whole) if path]))
        holder: Any = whole
        for step in way:
            holder = holder[step]
        match draw(st.sampled_from(["replace", "replace", "remove", "add"])):
            case "remove" if way:
                del holder[last]
            case "add" if isinstance(holder[last], dict):
                holder[last][draw(_KEYS)] = draw(JSON)
            case "add" if isinstance(holder[last], list):
                holder[last].append(draw(JSON))
            case _:
                holder[last] = draw(JSON)
    return method, version, whole[""]


def _check(method: str, version: str, raw: Any) -> UsableResult:
    before = deepcopy(raw)
    made = usable_result(method, raw, version)
    assert repr(raw) == repr(before)  # repr: nan is not equal to itself
    assert (made.result is None) == bool(made.problem)
    assert len(made.findings) <= MAX_FINDINGS and (not made.more or len(made.findings) == MAX_FINDINGS)
    for each in (*map(str, made.findings), made.problem):
        assert "\n" not in each and sanitize(each) == each and len(each) < 600, each
    if made.result is not None:
        asyncio.run(accepted(method, version, made.result))
    return made


@pytest.mark.parametrize(("method", "version"), _EVERY)
def test_a_valid_result_is_not_changed_and_nothing_is_found(method: str, version: str) -> None:
    raw = valid(method, version)
    made = _check(method, version, raw)
    assert made == UsableResult(raw)


@pytest.mark.slow
@given(st.sampled_from(_EVERY), JSON)
@examples(400)
def test_any_json_is_made_usable_or_refused_with_a_reason(place: tuple[str, str], raw: Any) -> None:
    _check(*place, raw)


@pytest.mark.slow
@given(_spoilt())
@examples(800)
def test_any_fault_in_a_valid_result_is_repaired_or_left_out(spoilt: tuple[str, str, Any]) -> None:
    method, version, raw = spoilt
    made = _check(method, version, raw)
    if made.result is None:  # only what opens, asks for input or is no object has to be whole
        is_opening = method == "server/discover"
        asks = isinstance(raw, dict) and raw.get("resultType") == "input_required"
        assert is_opening or asks or not isinstance(raw, dict), made.problem


@pytest.mark.slow
@given(st.lists(JSON, max_size=6), st.sampled_from(KNOWN_PROTOCOL_VERSIONS[::2]))
@examples(200)
def test_no_text_of_a_call_is_lost(blocks: list[Any], version: str) -> None:
    for word, block in enumerate(blocks):
        if isinstance(block, dict):
            block["text"] = f"word{word}"
    made = _check("tools/call", version, {"content": blocks, "resultType": "complete"})
    assert made.result is not None
    for word, (block, shown) in enumerate(zip(blocks, made.result["content"], strict=True)):
        if isinstance(block, dict) and shown.get("type") == "text":  # else it fits
            assert f"word{word}" in shown["text"]


@pytest.mark.parametrize("depth", [100, 300, 3_000])
@pytest.mark.parametrize(("method", "version"), _EVERY)
def test_deep_nesting_is_no_error_of_ours(method: str, version: str, depth: int) -> None:
    deep: Any = {}
    for _ in range(depth):
        deep = {"a": [deep]}
    for place in _places(VALID[method]):
        raw: Any = {"": valid(method, version)}
        *way, last = ("", *place)
        holder: Any = raw
        for step in way:
            holder = holder[step]
        holder[last] = deep
        made = usable_result(method, raw[""], version)
        if made.result is not None:
            asyncio.run(accepted(method, version, made.result))
