"""Converts messages to rows and back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from pallas.model import Image, Message, MessageRecord, MessageStatus, RunRecord, ThreadRecord, ToolCall
from pallas.model.codec import Undecodable, loads
from pallas.model.packed import packed_of

from .storable_text import new_id as new_id
from .storable_text import storable as storable

_MAX_DEPTH: Final = 12


def images_in(native: str) -> tuple[Image, ...]:
    """The pictures in the content blocks of a message, in order; none if it cannot be read."""
    try:
        return tuple(_images(loads(native), _MAX_DEPTH))
    except Undecodable:
        return ()


def _images(value: Any, depth: int) -> Iterator[Image]:
    if depth == 0:
        return
    if isinstance(value, list):
        for each in value:
            yield from _images(each, depth - 1)
    elif isinstance(value, dict):
        if value.get("type") == "image" and isinstance(value.get("data"), str):
            kind = value.get("mimeType", value.get("mime_type"))
            yield Image(value["data"], kind if isinstance(kind, str) else "image/png")
        else:
            for each in value.values():
                yield from _images(each, depth - 1)


def rows_of(
    message: Message,
    thread: str,
    index: int,
    *,
    run: str,
    status: MessageStatus,
    now: float,
    summary: bool = False,
) -> list[dict[str, Any]]:
    """The rows of one message from ``turn_index`` ``index`` on: one per answer of a ``tool`` message, else
    one.

    ``summary``: models see it in place of what was said before.
    """
    native = _native_of(message)
    first: dict[str, Any] = {
        "thread_id": thread,
        "turn_index": index,
        "part": index,
        "role": "system" if message.summary else message.role,
        "content": message.text,
        "tool_calls": [calls_as_json(call) for call in message.calls] or None,
        "tool_call_id": "",
        "tool_ok": True,
        "status": status,
        "run_id": run,
        "pictures": len(message.images),
        "images": None if native is not None else [[i.data, i.mime_type] for i in message.images] or None,
        "native": native,
        "summary": summary or message.summary,
        "created_at": now,
    }
    if message.role != "tool" or not message.answers:
        return [first]
    bare = {**first, "pictures": 0, "images": None, "native": None}
    return [
        {
            **(bare if number else first),
            "turn_index": index + number,
            "content": answer.text,
            "tool_call_id": answer.call_id,
            "tool_ok": answer.ok,
        }
        for number, answer in enumerate(message.answers)
    ]


def size_of(message: Message) -> int:
    """How many rows a message takes."""
    return len(message.answers) or 1 if message.role == "tool" else 1


def calls_as_json(call: ToolCall) -> dict[str, Any]:
    """A call as it is kept."""
    return {"id": storable(call.id), "name": call.name, "arguments": dict(call.arguments)}


def calls_of(stored: Any) -> tuple[ToolCall, ...]:
    """The stored calls. Invalid entries are left out."""
    return tuple(
        ToolCall(str(each.get("id", "")), str(each.get("name", "")), _mapping(each.get("arguments")))
        for each in (stored if isinstance(stored, list) else ())
        if isinstance(each, Mapping)
    )


def pictures_of(stored: Any, native: str | None) -> tuple[Image, ...]:
    """The pictures of a message, from its native form or from the column."""
    if native is not None:
        return images_in(native)
    return tuple(
        Image(str(each[0]), str(each[1]))
        for each in (stored if isinstance(stored, list) else ())
        if isinstance(each, Sequence) and len(each) == 2
    )


def message_record(row: Any) -> MessageRecord:
    """A row of ``messages`` as a record."""
    return MessageRecord(
        id=str(row.id),
        thread=row.thread_id,
        turn_index=row.turn_index,
        role=row.role,
        content=row.content,
        status=row.status,
        tool_calls=calls_of(row.tool_calls),
        tool_call_id=row.tool_call_id,
        tool_ok=row.tool_ok,
        images=pictures_of(row.images, row.native) if row.pictures else (),
        run=row.run_id,
        reason=row.reason,
        summary=row.summary,
        created_at=row.created_at,
    )


def thread_record(row: Any) -> ThreadRecord:
    """A row of ``threads`` with the agent's name. Its next index is the number of its rows."""
    return ThreadRecord(
        id=row.id,
        agent=row.agent,
        owner=row.owner,
        title=row.title,
        origin=row.origin,
        messages=row.next_index,
        created_at=row.created_at,
        updated_at=row.updated_at,
        last_turn_at=row.last_turn_at,
        branched_from=row.branched_from,
        branched_at=row.branched_at,
    )


_RUN_COLUMNS: Final = tuple(each.name for each in fields(RunRecord) if each.name != "thread")
"""The fields of a run that are columns of the same name."""


def run_values(run: RunRecord) -> dict[str, Any]:
    """A run as the values of its row, without its life."""
    return {name: getattr(run, name) for name in _RUN_COLUMNS} | {"thread_id": run.thread or None}


def run_record(row: Any, **changed: Any) -> RunRecord:
    """A row of ``runs``, with these values in place of its own."""
    values = {name: getattr(row, name) for name in _RUN_COLUMNS} | changed
    return RunRecord(thread=row.thread_id or "", **values)


def _native_of(message: Message) -> str | None:
    try:
        return packed_of(message.native)
    except ValueError:  # text that cannot be encoded: the message itself is stored all the same
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
