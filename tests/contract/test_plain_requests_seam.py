"""Requests to OpenAI's API that are sent as they are: this fails when the library would have changed them."""

from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, TypedDict, get_args, get_type_hints

import pytest
from openai._types import NOT_GIVEN, Omit
from openai._utils import async_maybe_transform
from openai._utils._transform import PropertyInfo
from openai.types.chat import ChatCompletionMessage, completion_create_params
from openai.types.responses import response_create_params

from pallas.executors.fastagent import plain_requests_seam
from pallas.executors.fastagent.plain_requests_seam import MAX_DEPTH, MODULES, PARAMETERS, hook_of, is_plain
from pallas.mcp_client import library_hooks

REQUESTS = [
    getattr(module, name)
    for module in (completion_create_params, response_create_params)
    for name in sorted(PARAMETERS)
    if hasattr(module, name)
]
CHAT = completion_create_params.CompletionCreateParamsStreaming


def _notes(kind: Any, seen: set[Any]) -> Iterator[PropertyInfo]:
    """What the types below ``kind`` say of their form on the wire."""
    if kind in seen:
        return
    seen.add(kind)
    yield from (each for each in getattr(kind, "__metadata__", ()) if isinstance(each, PropertyInfo))
    inner = [each for each in get_args(kind) if not isinstance(each, str | int)]
    if isinstance(kind, type) and hasattr(kind, "__total__"):
        inner += get_type_hints(kind, include_extras=True).values()
    for each in inner:
        yield from _notes(each, seen)


class _Renamed(TypedDict, total=False):
    parts: list[Annotated[str, PropertyInfo(alias="pieces")]]


def test_no_parameter_has_another_form_on_the_wire() -> None:
    assert list(_notes(_Renamed, set()))
    assert {each.__name__ for each in REQUESTS} == PARAMETERS
    for request in REQUESTS:
        seen: set[Any] = set()
        assert not list(_notes(request, seen))
        assert len(seen) > 100


@pytest.mark.parametrize("name", MODULES)
def test_requests_are_rebuilt_where_the_hook_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = import_module(name)
    monkeypatch.setattr(plain_requests_seam, "_hooked", set())
    monkeypatch.setattr(module, "async_maybe_transform", async_maybe_transform)
    plain_requests_seam.install()
    plain_requests_seam.install()
    assert len(library_hooks.installed(module, "async_maybe_transform")) == 1


async def test_plain_requests_are_what_the_library_makes_of_them() -> None:
    called: list[Any] = []

    async def rebuilt(data: Any, expected_type: Any) -> Any:
        called.append(data)
        return await async_maybe_transform(data, expected_type)

    hooked = hook_of(import_module(MODULES[0])).wrap(rebuilt)
    parts = [{"type": "text", "text": "hi"}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "enum": [1, 2.5]}}}
    plain = {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "r"},
        ],
        "tools": [tool],
        "stream": True,
        "temperature": 0.5,
        "stop": NOT_GIVEN,
        "seed": Omit(),
        "unknown": {"kept": [None]},
    }
    assert await hooked(plain, CHAT) == await async_maybe_transform(plain, CHAT)
    assert called == []
    # An answer of the library's own types, a tuple, an omitted value further down: rebuilt.
    message = ChatCompletionMessage(role="assistant", content="a")
    for odd in (
        {"model": "m", "messages": [message]},
        {"model": "m", "messages": tuple(plain["messages"])},  # type: ignore[arg-type]
        {"model": "m", "messages": [{"role": "user", "content": "x", "name": NOT_GIVEN}]},
    ):
        assert await hooked(odd, CHAT) == await async_maybe_transform(odd, CHAT)
    assert len(called) == 3
    # Other requests of the same module, and no request.
    assert await hooked({"parts": ["a"]}, _Renamed) == {"parts": ["a"]}
    assert await hooked(None, CHAT) is None
    assert len(called) == 5


def test_only_jsons_own_types_are_plain() -> None:
    class Text(str):
        pass

    assert is_plain({"a": [1, 2.5, True, None, "x", {"b": []}]})
    deep: Any = "x"
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert is_plain(deep)
    assert not is_plain({"a": deep})
    for _ in range(100_000):
        deep = [deep]
    assert not is_plain(deep)
    for odd in (Text("x"), ("a",), {"a": {"b": [Text("x")]}}, {1}, b"x", object()):
        assert not is_plain(odd)
