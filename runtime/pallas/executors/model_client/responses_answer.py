"""Reads the streams of OpenAI's Responses."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from pydantic_core import to_json

from .answer_errors import CutAnswerError, ReportedError, error_in
from .answer_reader import AnswerReader, CallIds, Event, dicts, index_in, text_of
from .call_arguments import whole_arguments


class _TextOfResponse(msgspec.Struct):
    type: Literal["response.output_text.delta"]
    delta: str
    output_index: int
    content_index: int
    object: None = None
    error: None = None
    item: None = None
    response: None = None


_TEXT_OF_RESPONSE: Final = msgspec.json.Decoder(_TextOfResponse)
_RESPONSE: Final[Event] = {
    "id": "response",
    "object": "response",
    "created_at": 0,
    "model": "",
    "status": "completed",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "error": None,
}
_MESSAGE_ITEM: Final = {"type": "message", "role": "assistant", "status": "in_progress"}
_TEXTS_OF_RESPONSE: Final[dict[Any, Event]] = {
    "response.output_text.delta": {"type": "output_text", "text": "", "annotations": []},
    "response.refusal.delta": {"type": "refusal", "refusal": ""},
}
"""Pieces of text, and the part of a message that they belong to."""


class ResponsesAnswer(AnswerReader):
    """Reads Responses. Each call has an id of its own, and its arguments are a text."""

    KEY = "output"
    END = "response.completed"
    _ENDS: Final = ("response.completed", "response.incomplete", "response.done")

    def __init__(self) -> None:
        super().__init__()
        self._ids = CallIds()
        self._id_of: dict[Any, str] = {}
        self._has_begun = False
        self._is_over = False
        self._parts: dict[int, int] = {}
        """How many parts each item of the output has so far, by its index."""
        self._done: dict[int, Event] = {}
        """The items that are whole, by their index."""

    def name_of_text(self, data: bytes) -> str | None:
        try:
            piece = _TEXT_OF_RESPONSE.decode(data)
        except msgspec.MsgspecError:
            return None
        return piece.type if 0 <= piece.content_index < self._parts.get(piece.output_index, 0) else None

    def rest(self) -> Sequence[Event]:
        """Also the end of a response whose items are whole, where only the last event is missing."""
        if not self._is_over and not (self.is_whole and self._done):
            self.is_whole = False
        super().rest()
        if self._is_over:
            return ()
        output = [self._done[index] for index in sorted(self._done)]
        return ({"type": "response.completed", "response": {**_RESPONSE, "output": output}},)

    def _corrected(self, event: Event) -> Sequence[Event]:
        kind, response = event.get("type"), event.get("response")
        if kind == "response.cancelled":
            raise ReportedError("it reported response.cancelled")
        if kind in self._ENDS and not isinstance(response, dict):
            raise CutAnswerError(f"its {kind} holds no response")
        if kind == "response.done":
            event["type"] = kind = "response.completed"
        if isinstance(response, dict) and (error := error_in(response, "status")) is not None:
            raise error
        if kind == "response.failed":
            raise ReportedError("it reported response.failed without a reason")
        if isinstance(response, dict):
            for index, item in enumerate(dicts(response.get("output"))):
                self._correct_item(item, index)
        if kind == "response.function_call_arguments.done":
            event["arguments"] = whole_arguments(text_of(event.get("arguments"))) or "{}"
        sent = event.get("item")
        if isinstance(sent, dict):
            is_done = kind == "response.output_item.done"
            self._correct_item(sent, event.get("output_index"), is_done=is_done)
            if is_done:
                self._done[self._place(event)] = sent
        self._is_over = self._is_over or kind in self._ENDS
        self.is_whole = self.is_whole or self._is_over
        if kind in _TEXTS_OF_RESPONSE and type(event.get("delta")) is not str:
            return ()
        return (*self._begun(kind, event), event)

    def _begun(self, kind: Any, event: Event) -> Sequence[Event]:
        """Return what a client must have got before an event: the beginnings of the answer, item and part."""
        found: list[Event] = []
        if not self._has_begun:
            self._has_begun = True
            if kind != "response.created":
                found.append({"type": "response.created", "response": {**_RESPONSE, "status": "in_progress"}})
        if kind == "response.output_item.added":
            self._parts.setdefault(self._place(event), 0)
        elif kind == "response.content_part.added":
            place = self._place(event)
            self._parts[place] = max(self._parts.get(place, 0), index_in(event, "content_index") + 1)
        elif kind in _TEXTS_OF_RESPONSE:
            event["output_index"] = place = self._place(event)
            event["content_index"] = part = min(index_in(event, "content_index"), self._parts.get(place, 0))
            where = {"item_id": text_of(event.get("item_id")) or "message", "output_index": place}
            if place not in self._parts:
                item = {**_MESSAGE_ITEM, "id": where["item_id"], "content": []}
                found.append({"type": "response.output_item.added", "item": item, **where})
            if part >= self._parts.setdefault(place, 0):
                self._parts[place] = part + 1
                empty = _TEXTS_OF_RESPONSE[kind]
                found.append(
                    {"type": "response.content_part.added", "part": {**empty}, "content_index": part, **where}
                )
        return found

    def _place(self, event: Event) -> int:
        """Return the index of an event's item; without one, that of the last item."""
        return index_in(event, "output_index", max(self._parts, default=0))

    def _whole(self, document: Event) -> Event:
        for index, item in enumerate(dicts(document["output"])):
            self._correct_item(item, index)
        return document

    def _streamed(self, document: Event) -> Sequence[Event]:
        begun = {**document, "status": "in_progress", "output": []}
        done = {"type": "response.completed", "response": document}
        return ({"type": "response.created", "response": begun}, *self._corrected(done))

    def _correct_item(self, item: Event, index: Any, *, is_done: bool = True) -> None:
        if item.get("type") != "function_call":
            return
        arguments = item.get("arguments")
        if isinstance(arguments, dict):
            arguments = to_json(arguments, inf_nan_mode="null").decode()
        text = whole_arguments(text_of(arguments), is_cut=item.get("status") == "incomplete")
        item["arguments"] = text or ("{}" if is_done else "")
        if call_id := text_of(item.get("call_id")):
            place = index if isinstance(index, int) else item.get("id")
            if place not in self._id_of:
                self._id_of[place] = self._ids.unique(call_id)
            item["call_id"] = self._id_of[place]
