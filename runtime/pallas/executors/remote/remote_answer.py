"""Converts a tool's result to an answer: its texts, usage, and the handle of the conversation."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pallas.model import Usage
from pallas.model.money import Cost, believed, cost_in
from pallas.safe_text import one_line, sanitize

from .call_method import CallMethod
from .turn_arguments import META

MAX_ANSWER: Final = 1_000_000
"""The limit of an answer, in characters."""
_FOOT: Final = re.compile(r"\(threadId: [^()\n]{1,200}\)")


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """The sanitised answer. ``handle`` continues the conversation, empty if there was none."""

    texts: tuple[str, ...]
    usage: Usage = field(default_factory=Usage)
    stop_reason: str = "endTurn"
    backend: str = ""
    handle: str = ""


def words_of(result: Any) -> str:
    """Return all text of a result, as it was sent."""
    return "\n\n".join(_texts(result))


def answer_of(result: Any, way: CallMethod) -> RemoteAnswer:
    """Return the answer in a result that is no error."""
    meta: Mapping[str, Any] = result.meta or {}
    found = list(_texts(result))
    if way.memory == "returned" and len(found) > 1 and _FOOT.fullmatch(found[-1]):
        found.pop()  # for models, which read only text
    text = "\n\n".join(found)
    structured = result.structured_content
    if way.field:
        text, found = _field(text, way.field), [text]
    pictures = sum(getattr(block, "type", "") == "image" for block in result.content)
    if not found and structured is not None:
        text = json.dumps(structured, indent=2, ensure_ascii=False)
    elif not found and pictures:
        text = f"[{pictures} pictures, which are not passed on]"
    usage = meta.get(f"{META}/usage")
    usage = usage if isinstance(usage, Mapping) else {}
    return RemoteAnswer(
        texts=_parts(text, meta.get(f"{META}/finalOffset")),
        usage=_priced(usage, meta.get(f"{META}/cost")),
        stop_reason=one_line(str(meta.get(f"{META}/stopReason", "")), 60) or "endTurn",
        backend=one_line(str(meta.get(f"{META}/backend", "")), 200),
        handle=_handle(way, meta, structured),
    )


def _priced(usage: Mapping[str, Any], cost: Any) -> Usage:
    """Return the tokens, with what another Pallas says that its run and those below it cost."""
    counted = Usage(_number(usage.get("inputTokens")), _number(usage.get("outputTokens")))
    if not isinstance(cost, Mapping):
        return counted.without_steps
    spent = cost_in(cost, tree=True)
    if believed(spent.cost) != spent.cost:
        spent = Cost(None, spent.unpriced + 1)
    return replace(counted, cost=spent.cost, unpriced=spent.unpriced)


def _field(text: str, name: str) -> str:
    """Return the value of that key in a JSON object; the text itself if it is none."""
    with suppress(ValueError, RecursionError):
        body = json.loads(text)
        if isinstance(body, dict) and isinstance(body.get(name), str):
            return str(body[name])
    return text


def _parts(text: str, offset: Any) -> tuple[str, ...]:
    """Split a text into intermediate texts and the answer, at the offset of the answer if known."""
    if isinstance(offset, int) and 0 < offset < len(text):
        before, last = text[:offset].removesuffix("\n\n"), text[offset:]
        return sanitize(before, MAX_ANSWER), sanitize(last, MAX_ANSWER)
    return (sanitize(text, MAX_ANSWER),)


def _handle(way: CallMethod, meta: Mapping[str, Any], structured: Any) -> str:
    if way.memory == "minted":
        found = meta.get(f"{META}/conversationId")
    elif way.conversation:
        found = structured.get(way.conversation) if isinstance(structured, Mapping) else None
        for key in (way.conversation, f"{META}/{way.conversation}"):
            found = found or meta.get(key)
    else:
        found = None
    return found if isinstance(found, str) and found.isprintable() else ""


def _texts(result: Any) -> Iterator[str]:
    for block in result.content:
        if getattr(block, "type", "") == "text":
            yield str(block.text)
        elif isinstance(inner := getattr(getattr(block, "resource", None), "text", None), str):
            yield inner


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
