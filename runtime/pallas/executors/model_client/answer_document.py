"""Makes one JSON document of a model's answer, also of a streamed one.

Streams come in the forms of OpenAI (chat completions, responses), Anthropic and Google. A secret may be split
over the pieces of a stream, so only the whole document can be masked.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from pydantic_core import from_json, to_json

_DATA: Final = b"data:"
_FINAL: Final = ("response.completed", "response.incomplete", "response.failed")
_ENDS: Final = re.compile(
    rb'\[DONE\]|"(?:message_stop|response\.(?:completed|incomplete|failed))"|"finish_?[Rr]eason"\s*:\s*"'
)
"""What a stream has when it is over."""
_TEXTS: Final = {
    "output_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
    "reasoning_summary_text": "text",
}
"""Kinds of text in the deltas of OpenAI's Responses, and the names that they have in the whole answer."""
_FIELDS: Final = {"arguments": "arguments", "input": "input", "code": "code"}
"""The same for what is not in a list, by the last word of its kind."""


def answer_of(body: bytes) -> str:
    """The answer as JSON text. A body that is not JSON is a JSON string."""
    return to_json(_document(body), inf_nan_mode="null").decode()


def is_stream(plain: bytes) -> bool:
    """Whether a body without blanks at its beginning is a stream of server-sent events."""
    return plain.startswith((b"data:", b"event:", b"id:", b":"))


def breaks_off(body: bytes) -> bool:
    """Whether an answer seems to end before it was over."""
    plain = body.strip()
    if is_stream(plain):
        return _ENDS.search(plain) is None
    return bool(plain) and not plain.endswith((b"}", b"]"))


def _document(body: bytes) -> Any:
    plain = body.lstrip()
    if is_stream(plain):
        events = [each for line in plain.splitlines() if (each := _event(line)) is not None]
        return _merged(events)
    try:
        return from_json(plain) if plain else ""
    except ValueError:
        lines = [_object(line) for line in plain.splitlines()]
        pieces = [each for each in lines if each is not None]
        # One object a line; the last may have broken off.
        return (
            _merged(pieces) if len(pieces) > 1 and None not in lines[:-1] else body.decode("utf-8", "replace")
        )


def _event(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(_DATA):
        return None
    return _object(line[len(_DATA) :].strip())


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(data, type=dict) if data.startswith(b"{") else None
    except msgspec.DecodeError:  # the stream broke off here
        return None


def _merged(events: Sequence[dict[str, Any]]) -> Any:
    for event in reversed(events):
        if event.get("type") in _FINAL:
            return event.get("response")
    kinds = {str(event.get("type")) for event in events}
    if "message_start" in kinds:
        return _of_anthropic(events)
    if any("choices" in event for event in events):
        return _of_chat(events)
    if any("candidates" in event for event in events):
        return _of_google(events)
    if any(kind.startswith("response.") for kind in kinds):
        return _of_responses(events)
    return _joined(events)


def _of_chat(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        merged |= {name: value for name, value in event.items() if name != "choices" and value is not None}
        for choice in _dicts(event.get("choices")):
            place = choices.setdefault(_index(choice), {"index": _index(choice), "message": {}})
            _add(place["message"], _dict(choice.get("delta")))
            if choice.get("finish_reason") is not None:
                place["finish_reason"] = choice["finish_reason"]
    return {**merged, "object": "chat.completion", "choices": [choices[each] for each in sorted(choices)]}


def _add(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        before = message.get(name)
        if name == "tool_calls":
            calls = message.setdefault(name, [])
            for call in _dicts(value):
                known = next((each for each in calls if each.get("index") == call.get("index")), None)
                if known is None:
                    calls.append(known := {})
                _add(known, call)
        elif isinstance(value, dict):
            _add(message.setdefault(name, {}), value)
        elif isinstance(value, str) and isinstance(before, str) and name not in ("role", "id", "type"):
            message[name] = before + value
        elif value is not None:
            message[name] = value


def _of_anthropic(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        kind = event.get("type")
        if kind == "message_start":
            message = dict(_dict(event.get("message")))
        elif kind == "content_block_start":
            blocks[_index(event)] = dict(_dict(event.get("content_block")))
        elif kind == "content_block_delta":
            block = blocks.setdefault(_index(event), {})
            for name, value in _dict(event.get("delta")).items():
                name = "input" if name == "partial_json" else name
                before = block.get(name)
                if name != "type":
                    block[name] = before + value if isinstance(before, str) and before else value
        elif kind == "message_delta":
            message |= _dict(event.get("delta"))
            message["usage"] = {**_dict(message.get("usage")), **_dict(event.get("usage"))}
    for block in blocks.values():
        if isinstance(block.get("input"), str):
            with suppress(ValueError):  # it broke off
                block["input"] = from_json(block["input"])
    return {**message, "content": [blocks[each] for each in sorted(blocks)]}


def _of_google(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for event in events:
        merged |= {name: value for name, value in event.items() if name != "candidates"}
        for candidate in _dicts(event.get("candidates")):
            place = candidates.setdefault(_index(candidate), {})
            parts = _dict(place.get("content")).get("parts", [])
            content = _dict(candidate.get("content"))
            for part in _dicts(content.get("parts")):
                last = parts[-1] if parts else {}
                if "text" in part and "text" in last and part.get("thought") == last.get("thought"):
                    parts[-1] = {**last, **part, "text": str(last["text"]) + str(part["text"])}
                else:
                    parts.append(part)
            place |= candidate
            place["content"] = {**content, "parts": parts}
    return {**merged, "candidates": [candidates[each] for each in sorted(candidates)]}


def _of_responses(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """An answer of OpenAI's Responses that broke off: its items as far as they were sent."""
    response: dict[str, Any] = {}
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        response |= _dict(event.get("response"))
        item = items.setdefault(_index(event, "output_index"), {}) if "output_index" in event else response
        if isinstance(event.get("item"), dict):
            item |= event["item"]
        delta = event.get("delta")
        if isinstance(delta, str):
            _add_delta(item, str(event.get("type")), event, delta)
        elif event.get("type") == "error":
            response["error"] = {name: each for name, each in event.items() if name != "type"}
    return {**response, "output": [items[each] for each in sorted(items)]}


def _add_delta(item: dict[str, Any], kind: str, event: Mapping[str, Any], delta: str) -> None:
    """Add a piece to its item: ``kind`` is ``response.output_text.delta``."""
    of = kind.removeprefix("response.").removesuffix(".delta")
    if of in _TEXTS:
        parts, index = (
            ("summary", "summary_index") if "summary_index" in event else ("content", "content_index")
        )
        blocks = item[parts] if isinstance(item.get(parts), list) else item.setdefault(parts, [])
        number = min(_index(event, index), len(blocks))
        if number == len(blocks):
            blocks.append({"type": "summary_text" if parts == "summary" else of})
        place, name = blocks[number], _TEXTS[of]
    else:
        place, name = item, _FIELDS.get(of.rpartition("_")[2], of)
    place[name] = str(place.get(name) or "") + delta


def _joined(events: Sequence[Any]) -> Any:
    """One document of pieces in an unknown form: a secret may be split over their texts."""
    if all(isinstance(each, str) for each in events):
        return events[0] if len(set(events)) == 1 and len(events[0]) > 1 else "".join(events)
    if all(isinstance(each, dict) for each in events):
        names = dict.fromkeys(name for each in events for name in each)
        return {name: _joined([each[name] for each in events if name in each]) for name in names}
    if all(isinstance(each, list) for each in events):
        longest = max(map(len, events), default=0)
        return [_joined([each[place] for each in events if place < len(each)]) for place in range(longest)]
    return events[-1]


def _index(value: Mapping[str, Any], name: str = "index") -> int:
    index = value.get(name)
    return max(0, index) if isinstance(index, int) else 0


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
