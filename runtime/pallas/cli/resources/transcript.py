"""A thread as a person reads it: who said what, what was called and what came back."""

import json
from collections.abc import Mapping
from typing import Any, Final

from pallas.model.safe_text import one_line

from .text_output import when

_MAX_ARGUMENTS: Final = 200
_MAX_ANSWER: Final = 300


def conversation(thread: Mapping[str, Any]) -> str:
    """The thread's heading and its messages, the oldest first."""
    title = one_line(str(thread.get("title") or ""), 200)
    head = f"{thread.get('id')}  {thread.get('agent')}{'  ' + title if title else ''}"
    blocks = [head, *(_block(each) for each in thread.get("messages") or () if isinstance(each, Mapping))]
    return "\n\n".join(blocks)


def _block(message: Mapping[str, Any]) -> str:
    role = str(message.get("role") or "?")
    notes = [str(message["status"])] if message.get("status") not in (None, "complete") else []
    if message.get("reason"):
        notes.append(one_line(str(message["reason"]), 200))
    if message.get("summary"):
        notes.append("summary of what was said before")
    shown = f"{role}  {when(message.get('createdAt'))}".rstrip() + (
        f"  [{': '.join(notes)}]" if notes else ""
    )
    lines = [shown]
    content = str(message.get("content") or "")
    if role == "tool":
        lines.append(f"  → {one_line(content, _MAX_ANSWER)}")
    elif content:
        lines += [f"  {line}".rstrip() for line in content.split("\n")]
    for image in message.get("images") or ():
        kind = image.get("mimeType") if isinstance(image, Mapping) else ""
        lines.append(f"  [image {kind or ''}]".replace(" ]", "]"))
    for call in message.get("toolCalls") or ():
        if isinstance(call, Mapping):
            lines.append(f"  {call.get('name')}({_arguments(call.get('arguments'))})")
    return "\n".join(lines)


def _arguments(value: Any) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{key}={json.dumps(each, ensure_ascii=False)}" for key, each in value.items())
    return one_line(str(value if value is not None else ""), _MAX_ARGUMENTS)
