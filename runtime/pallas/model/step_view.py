"""What a step says to people: instructions, messages, tools, parameters and the answer.

Requests and responses are documents of OpenAI (chat completions, responses), Anthropic or Google. A call has
its name and arguments as parameters, and its result as the answer.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pallas.safe_text import sanitize

_CONVERSATION: Final = ("messages", "input", "contents")
_INSTRUCTIONS: Final = ("system", "instructions", "systemInstruction")
_LEADING: Final = ("system", "developer")
_NO_PARAMS: Final = frozenset({*_CONVERSATION, *_INSTRUCTIONS, "model", "tools"})


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message that a model got or wrote; tool calls and results are lines of its text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class ModelTool:
    """A tool that a model was offered."""

    name: str
    description: str
    # All of it, as JSON text with sorted keys
    definition: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class StepView:
    """The contents of a step. Text is sanitised."""

    instructions: str = ""
    messages: tuple[SentMessage, ...] = ()
    tools: tuple[ModelTool, ...] = ()
    params: tuple[tuple[str, str], ...] = ()  # names with JSON texts
    reasoning: str = ""
    answer: str = ""  # with tool calls


def view_of(request: str, response: str) -> StepView:
    """The contents of a step, from its two documents; of another document as much as is found.

    Nothing of documents that are nested too deeply to be read.
    """
    try:
        return _view_of(_loaded(request), _loaded(response))
    except RecursionError:
        return StepView()


def _view_of(asked: Mapping[str, Any], said: Mapping[str, Any]) -> StepView:
    messages = [_message(each) for name in _CONVERSATION for each in _items(asked.get(name))]
    leading = [each.text for each in messages if each.role in _LEADING]
    leading += [_text(asked[name]) for name in _INSTRUCTIONS if name in asked]
    return StepView(
        instructions="\n\n".join(leading),
        messages=tuple(each for each in messages if each.role not in _LEADING),
        tools=tuple(_tools(asked.get("tools"))),
        params=tuple((sanitize(name), _json(each)) for name, each in asked.items() if name not in _NO_PARAMS),
        reasoning="\n".join(_reasoning(said)),
        answer="\n".join(_answer(said)),
    )


def _loaded(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _message(item: Any) -> SentMessage:
    if not isinstance(item, Mapping):
        return SentMessage("user", _text(item))
    kind = str(item.get("type", ""))
    role = str(item.get("role") or {"function_call_output": "tool"}.get(kind, "assistant"))
    return SentMessage(sanitize(role, 40), "\n".join(_lines(item)))


def _lines(item: Any) -> Iterator[str]:
    """The lines of a message, or of a part of one."""
    if isinstance(item, str):
        yield sanitize(item)
        return
    if isinstance(item, list):
        for each in item:
            yield from _lines(each)
        return
    if not isinstance(item, Mapping):
        return
    for name in ("text", "refusal", "thinking", "summary"):
        if item.get(name):
            yield from _lines(item[name])
    for call in (*_items(item.get("tool_calls")), *_items(item.get("functionCall"))):
        yield _call(call)
    kind = item.get("type")
    if kind in ("tool_use", "function_call"):
        yield _call(item)
    elif kind in ("image", "image_url", "input_image") or "inlineData" in item:
        yield "[image]"
    elif "output" in item:
        yield from _lines(item["output"])
    elif "functionResponse" in item:
        yield _json(item["functionResponse"].get("response"))
    for name in ("content", "parts"):
        if item.get(name):
            yield from _lines(item[name])


def _text(value: Any) -> str:
    return "\n".join(_lines(value))


def _call(call: Any) -> str:
    found = call.get("function", call) if isinstance(call, Mapping) else {}
    given = next((found[name] for name in ("arguments", "input", "args") if name in found), "")
    arguments = sanitize(given) if isinstance(given, str) else _json(given)
    return f"call {sanitize(str(found.get('name', '')), 200)} {arguments}"


def _tools(tools: Any) -> Iterator[ModelTool]:
    for tool in _items(tools):
        if not isinstance(tool, Mapping):
            continue
        if "functionDeclarations" in tool:
            yield from _tools(tool["functionDeclarations"])
            continue
        found = tool["function"] if isinstance(tool.get("function"), Mapping) else tool
        name = str(found.get("name") or found.get("type", ""))
        about = sanitize(str(found.get("description") or ""))
        yield ModelTool(sanitize(name, 200), about, sanitize(json.dumps(found, sort_keys=True)))


def _parts(said: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of an answer: messages, blocks or items."""
    for choice in _items(said.get("choices")):
        yield choice.get("message") or {}
    for candidate in _items(said.get("candidates")):
        yield from _items((candidate.get("content") or {}).get("parts"))
    for name in ("content", "output"):
        yield from (each for each in _items(said.get(name)) if isinstance(each, Mapping))


def _is_reasoning(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("thinking", "reasoning") or bool(part.get("thought"))


def _reasoning(said: Mapping[str, Any]) -> Iterator[str]:
    for part in _parts(said):
        if _is_reasoning(part):
            yield from _lines(part)
        for name in ("reasoning_content", "reasoning"):
            if isinstance(part.get(name), str):
                yield sanitize(part[name])


def _answer(said: Mapping[str, Any]) -> Iterator[str]:
    for part in _parts(said):
        if not _is_reasoning(part):
            yield from _lines(part)
    if isinstance(error := said.get("error"), Mapping | str):
        yield _json(error)


def _items(value: Any) -> list[Any]:
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _json(value: Any) -> str:
    return sanitize(json.dumps(value, ensure_ascii=False))
