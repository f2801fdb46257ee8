"""What a model said in a recorded response, of any provider: its text and its calls."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pallas.model import ToolCall


class SaidByModel(NamedTuple):
    """The text of an answer, and its calls; a call has no id if the provider gave none."""

    text: str
    calls: tuple[ToolCall, ...]


def said_by_model(document: Any) -> SaidByModel:
    """Read a response of OpenAI (chat completions, responses), Anthropic or Google; reasoning is left out."""
    texts: list[str] = []
    calls: list[ToolCall] = []
    for part in _parts(document):
        if isinstance(part, str):
            texts.append(part)
        else:
            calls.append(part)
    return SaidByModel("".join(texts), tuple(calls))


def _parts(document: Any) -> Iterator[str | ToolCall]:
    """The texts and the calls of a response, in their order."""
    if not isinstance(document, dict):
        return
    for choice in _dicts(document.get("choices")):
        yield from _chat_parts(_dict(choice.get("message")))
    for candidate in _dicts(document.get("candidates")):
        for part in _dicts(_dict(candidate.get("content")).get("parts")):
            yield from _google_parts(part)
    for item in (*_dicts(document.get("content")), *_dicts(document.get("output"))):
        yield from _typed_parts(item)


def _chat_parts(message: Mapping[str, Any]) -> Iterator[str | ToolCall]:
    content = message.get("content")
    if isinstance(content, str):
        yield content
    for part in _dicts(content):
        yield from _typed_parts(part)
    for call in _dicts(message.get("tool_calls")):
        function = _dict(call.get("function"))
        yield _call(call.get("id"), function.get("name"), function.get("arguments"))


def _google_parts(part: Mapping[str, Any]) -> Iterator[str | ToolCall]:
    if isinstance(call := part.get("functionCall"), dict):
        yield _call(call.get("id"), call.get("name"), call.get("args"))
    elif isinstance(text := part.get("text"), str) and not part.get("thought"):
        yield text


def _typed_parts(part: Mapping[str, Any]) -> Iterator[str | ToolCall]:
    """A block of Anthropic, an item of OpenAI's responses, or a part of one."""
    kind = part.get("type")
    if kind == "tool_use":
        yield _call(part.get("id"), part.get("name"), part.get("input"))
    elif kind == "function_call":
        yield _call(part.get("call_id"), part.get("name"), part.get("arguments"))
    elif kind == "message":
        for each in _dicts(part.get("content")):
            yield from _typed_parts(each)
    elif kind in ("text", "output_text") and isinstance(text := part.get("text"), str):
        yield text


def _call(call_id: Any, name: Any, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {}
    return ToolCall(
        call_id if isinstance(call_id, str) else "",
        name if isinstance(name, str) else "",
        arguments if isinstance(arguments, dict) else {},
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
