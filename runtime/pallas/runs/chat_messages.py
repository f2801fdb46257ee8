"""The ``messages`` parameter of a call: a whole conversation in the form of OpenAI's chat completions
(AG-14).

The names that the REST API uses for a thread's messages (``toolCalls``, ``toolCallId``, ``images``) are
accepted too.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pallas.model import Fault, FaultType, Image, Message, ToolAnswer, ToolCall
from pallas.model.params import is_json
from pallas.safe_text import one_line

MAX_MESSAGES: Final = 10_000

_ROLES: Final = ("user", "assistant", "system", "tool")


@dataclass(frozen=True, slots=True)
class MessageOverride:
    """What a call is about, in place of its conversation."""

    history: tuple[Message, ...]  # the messages before ``text``
    text: str  # what the user says now, with its ``images``
    images: tuple[Image, ...] = ()
    system: str = ""  # the rows of role system, for this call only; empty if there are none


def read_messages(value: Any) -> MessageOverride:
    """Read the messages of a call. The last one is what the user says now.

    Raises Fault (PROTOCOL) that names the mistake as ``messages[i]...``: an invalid row, a call without its
    answer, an answer without its call, or a last row that is not the user's.
    """
    if not isinstance(value, list) or not value:
        raise _wrong("messages", "must be a list of messages, each with role and content")
    if len(value) > MAX_MESSAGES:
        raise _wrong("messages", f"has {len(value)} rows; at most {MAX_MESSAGES}")
    rows = [_row(f"messages[{index}]", each) for index, each in enumerate(value)]
    system = "\n\n".join(row.text for row in rows if row.role == "system" and row.text)
    messages = tuple(_joined(row for row in rows if row.role != "system"))
    last = rows[-1]
    if last.role != "user":
        raise _wrong(
            f"{last.where}.role", f"is {last.role}, but the last message is what the user says now; add that"
        )
    return MessageOverride(messages[:-1], last.text, last.images, system)


@dataclass(frozen=True, slots=True)
class _Row:
    where: str
    role: str
    text: str
    images: tuple[Image, ...]
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    ok: bool = True


def _joined(rows: Iterator[_Row]) -> Iterator[Message]:
    """Yield rows as messages; all answers to the calls of one message become one message."""
    open_calls: dict[str, ToolCall] = {}
    answers: list[ToolAnswer] = []
    asked = ""
    for row in rows:
        if row.role == "tool":
            if row.answers not in open_calls:
                known = f"open are {', '.join(map(repr, open_calls))}" if open_calls else "none is open"
                raise _wrong(
                    f"{row.where}.tool_call_id", f"{one_line(row.answers, 60)!r} answers no call; {known}"
                )
            del open_calls[row.answers]
            answers.append(ToolAnswer(row.answers, row.text, row.ok))
            if not open_calls:
                text = "\n".join(answer.text for answer in answers if answer.text)
                yield Message("tool", text, answers=tuple(answers))
                answers = []
            continue
        if open_calls:
            missing = one_line(next(iter(open_calls)), 60)
            raise _wrong(asked, f"{missing!r} is not answered; let a row of role tool follow with its id")
        asked, open_calls = f"{row.where}.tool_calls", {call.id: call for call in row.calls}
        yield Message(
            "assistant" if row.role == "assistant" else "user", row.text, row.images, calls=row.calls
        )
    if open_calls:
        missing = one_line(next(iter(open_calls)), 60)
        raise _wrong(asked, f"{missing!r} is not answered; let a row of role tool follow with its id")


def _row(where: str, value: Any) -> _Row:
    if not isinstance(value, Mapping):
        raise _wrong(where, "must be an object with role and content")
    role = value.get("role")
    if role == "developer":
        role = "system"
    if role not in _ROLES:
        raise _wrong(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
    calls = _calls(f"{where}.tool_calls", _either(value, "tool_calls", "toolCalls"))
    if calls and role != "assistant":
        raise _wrong(f"{where}.tool_calls", "belongs into a message of the assistant only")
    content = value.get("content")
    if content is None and not (role == "assistant" and calls):
        raise _wrong(f"{where}.content", "is missing")
    text, images = _content(f"{where}.content", content)
    images += _images(f"{where}.images", value.get("images"))
    if images and role != "user":
        raise _wrong(f"{where}.content", "has a picture; pictures go with messages of the user")
    answers = _either(value, "tool_call_id", "toolCallId")
    if role == "tool" and (not isinstance(answers, str) or not answers):
        raise _wrong(f"{where}.tool_call_id", "is missing: the id of the call that this answers")
    return _Row(where, role, text, images, calls, answers if role == "tool" else "")


def _either(value: Mapping[str, Any], snake: str, camel: str) -> Any:
    return value[snake] if value.get(snake) is not None else value.get(camel)


def _content(where: str, value: Any) -> tuple[str, tuple[Image, ...]]:
    if value is None:
        return "", ()
    if isinstance(value, str):
        return value, ()
    if not isinstance(value, list):
        raise _wrong(where, "must be a text or a list of parts")
    texts: list[str] = []
    images: list[Image] = []
    for index, part in enumerate(value):
        place = f"{where}[{index}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind in ("text", "input_text", "output_text") and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif kind in ("image_url", "input_image"):
            images.append(_data_url(f"{place}.image_url", part.get("image_url")))
        else:
            form = '{"type": "text", "text": ...} or {"type": "image_url", "image_url": {"url": "data:..."}}'
            raise _wrong(place, f"must be {form}")
    return "\n".join(texts), tuple(images)


def _data_url(where: str, value: Any) -> Image:
    url = value.get("url") if isinstance(value, Mapping) else value
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    kind, _, rest = head.removeprefix("data:").partition(";")
    if not comma or not head.startswith("data:image/") or rest != "base64":
        raise _wrong(where, "must be a data: URL of a picture in base64 (data:image/png;base64,...)")
    return Image(data, kind)


def _images(where: str, value: Any) -> tuple[Image, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong(where, "must be a list of pictures")
    images = []
    for index, each in enumerate(value):
        data = each.get("data") if isinstance(each, Mapping) else None
        kind = _either(each, "mime_type", "mimeType") if isinstance(each, Mapping) else None
        if not isinstance(data, str) or not isinstance(kind, str):
            raise _wrong(f"{where}[{index}]", "needs data (base64) and mime_type, both texts")
        images.append(Image(data, kind))
    return tuple(images)


def _calls(where: str, value: Any) -> tuple[ToolCall, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise _wrong(where, "must be a list of calls")
    calls: dict[str, ToolCall] = {}
    for index, each in enumerate(value):
        call = _call(f"{where}[{index}]", each)
        if call.id in calls:
            raise _wrong(f"{where}[{index}].id", f"{one_line(call.id, 60)!r} is there twice")
        calls[call.id] = call
    return tuple(calls.values())


def _call(where: str, value: Any) -> ToolCall:
    if not isinstance(value, Mapping):
        raise _wrong(where, 'must be {"id": ..., "function": {"name": ..., "arguments": ...}}')
    function = value.get("function")
    called = function if isinstance(function, Mapping) else value
    call_id, name, arguments = value.get("id"), called.get("name"), called.get("arguments")
    if not isinstance(call_id, str) or not call_id:
        raise _wrong(f"{where}.id", "is missing")
    if not isinstance(name, str) or not name:
        raise _wrong(f"{where}.function.name", "is missing")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments.strip() or "{}")
        except (ValueError, RecursionError):
            arguments = 0  # reported below
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping) or not is_json(arguments):
        raise _wrong(f"{where}.function.arguments", "must be an object, or the JSON text of one")
    return ToolCall(call_id, name, dict(arguments))


def _wrong(where: str, problem: str) -> Fault:
    return Fault(FaultType.PROTOCOL, f"{where} {problem}", data={"key": where})
