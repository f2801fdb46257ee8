"""Reads the streams of OpenAI's Responses, Anthropic's Messages and Google's Gemini."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from pydantic_core import to_json

from .answer_errors import ReportedError, error_in
from .answer_reader import AnswerReader, CallIds, Event, dicts, text_of
from .call_arguments import arguments_object, whole_arguments
from .chat_answer import ChatAnswer


class _TextOfResponse(msgspec.Struct):
    type: Literal["response.output_text.delta", "response.reasoning_summary_text.delta"]
    object: None = None
    error: None = None
    item: None = None
    response: None = None


class _TextDelta(msgspec.Struct):
    type: Literal["text_delta", "thinking_delta"]


class _TextOfMessage(msgspec.Struct):
    type: Literal["content_block_delta"]
    index: int
    delta: _TextDelta
    object: None = None
    error: None = None


_TEXT_OF_RESPONSE: Final = msgspec.json.Decoder(_TextOfResponse)
_TEXT_OF_MESSAGE: Final = msgspec.json.Decoder(_TextOfMessage)


class ResponsesAnswer(AnswerReader):
    """Reads Responses. Each call has an id of its own, and its arguments are a text."""

    KEY = "output"
    END = "response.completed"
    _ENDS: Final = ("response.completed", "response.incomplete", "response.done")

    def __init__(self) -> None:
        super().__init__()
        self._ids = CallIds()
        self._id_of: dict[Any, str] = {}

    def name_of_text(self, data: bytes) -> str | None:
        try:
            return _TEXT_OF_RESPONSE.decode(data).type
        except msgspec.MsgspecError:
            return None

    def _corrected(self, event: Event) -> Sequence[Event]:
        kind, response = event.get("type"), event.get("response")
        if isinstance(response, dict):
            if (error := error_in(response, "status")) is not None:
                raise error
            if kind == "response.failed":
                raise ReportedError("it reported response.failed without a reason")
            for index, item in enumerate(dicts(response.get("output"))):
                self._correct_item(item, index)
        if kind == "response.function_call_arguments.done":
            event["arguments"] = whole_arguments(text_of(event.get("arguments")))
        if isinstance(event.get("item"), dict):
            self._correct_item(event["item"], event.get("output_index"))
        self.is_whole = self.is_whole or kind in self._ENDS
        return (event,)

    def _whole(self, document: Event) -> Event:
        for index, item in enumerate(dicts(document["output"])):
            self._correct_item(item, index)
        return document

    def _streamed(self, document: Event) -> Sequence[Event]:
        begun = {**document, "status": "in_progress", "output": []}
        done = {"type": "response.completed", "response": document}
        return ({"type": "response.created", "response": begun}, *self._corrected(done))

    def _correct_item(self, item: Event, index: Any) -> None:
        if item.get("type") != "function_call":
            return
        arguments = item.get("arguments")
        if isinstance(arguments, dict):
            arguments = to_json(arguments, inf_nan_mode="null").decode()
        item["arguments"] = whole_arguments(text_of(arguments), is_cut=item.get("status") == "incomplete")
        if call_id := text_of(item.get("call_id")):
            place = index if isinstance(index, int) else item.get("id")
            if place not in self._id_of:
                self._id_of[place] = self._ids.unique(call_id)
            item["call_id"] = self._id_of[place]


class MessagesAnswer(AnswerReader):
    """Reads Messages. Each block has an index and each call an id of its own."""

    KEY = "content"
    END = "stop_reason or message_stop"
    _OWN_REASONS: Final = frozenset({"max_tokens", "refusal", "pause_turn", "model_context_window_exceeded"})
    """Reasons that say more than that there are calls."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = CallIds()
        self._index_of: dict[Any, int] = {}
        self._blocks = 0
        self._has_calls = False
        self._inputs: dict[int, list[str]] = {}
        """The texts of inputs so far, by the index of their block: a library completes one that is cut."""

    def name_of_text(self, data: bytes) -> str | None:
        try:
            piece = _TEXT_OF_MESSAGE.decode(data)
        except msgspec.MsgspecError:
            return None
        return piece.type if self._index_of.get(piece.index) == piece.index else None

    def _corrected(self, event: Event) -> Sequence[Event]:
        if "index" in event and event.get("type") != "content_block_start":
            event["index"] = self._index_of.get(event["index"], max(self._blocks - 1, 0))
        match event.get("type"):
            case "message_start":
                self._correct_message(event)
            case "content_block_start":
                self._index_of[event.get("index")] = event["index"] = self._blocks
                self._blocks += 1
                if isinstance(block := event.get("content_block"), dict):
                    self._correct_block(block)
            case "content_block_delta":
                delta = event.get("delta")
                if isinstance(delta, dict) and delta.get("type") == "input_json_delta":
                    self._inputs.setdefault(event.get("index", 0), []).append(
                        text_of(delta.get("partial_json"))
                    )
                    return ()
            case "content_block_stop":
                return (*self._ended(event.get("index", 0)), event)
            case "message_delta":
                delta = event.get("delta")
                event["delta"] = delta = delta if isinstance(delta, dict) else {}
                if not isinstance(event.get("usage"), dict):
                    event["usage"] = {"output_tokens": 0}
                reason = delta.get("stop_reason")
                self._correct_reason(delta)
                cut = [each for index in list(self._inputs) for each in self._ended(index, reason)]
                return (*cut, event)
            case "message_stop":
                self.is_whole = True
        return (event,)

    def _ended(self, index: int, reason: Any = None) -> Sequence[Event]:
        """Return the input of a block as one piece, now that it is whole."""
        parts = self._inputs.pop(index, None)
        if parts is None:
            return ()
        text = whole_arguments("".join(parts), is_cut=reason == "max_tokens")
        delta = {"type": "input_json_delta", "partial_json": text}
        return ({"type": "content_block_delta", "index": index, "delta": delta},)

    def _whole(self, document: Event) -> Event:
        for block in dicts(document["content"]):
            self._correct_block(block)
        self._correct_reason(document)
        return document

    def _streamed(self, document: Event) -> Sequence[Event]:
        """The events of a server that streams: a beginning, each block whole, and the end."""
        blocks, usage = dicts(document["content"]), document.get("usage")
        begun = {**document, "content": [], "stop_reason": None}
        events: list[Event] = [{"type": "message_start", "message": begun}]
        for index, block in enumerate(blocks):
            empty, deltas = _begun(block)
            events.append({"type": "content_block_start", "index": index, "content_block": empty})
            events += [{"type": "content_block_delta", "index": index, "delta": each} for each in deltas]
            events.append({"type": "content_block_stop", "index": index})
        delta = {"stop_reason": document.get("stop_reason"), "stop_sequence": document.get("stop_sequence")}
        events += [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]
        return [each for event in events for each in self._corrected(event)]

    def _correct_message(self, event: Event) -> None:
        message = event.get("message")
        event["message"] = message = message if isinstance(message, dict) else {}
        if not isinstance(message.get("content"), list):
            message["content"] = []
        if not isinstance(message.get("usage"), dict):
            message["usage"] = {"input_tokens": 0, "output_tokens": 0}

    def _correct_block(self, block: Event) -> None:
        if block.get("type") == "tool_use":
            self._has_calls = True
            block["id"] = self._ids.unique(text_of(block.get("id")) or "call")
            block["input"] = arguments_object(block.get("input"))

    def _correct_reason(self, where: Event) -> None:
        reason = where.get("stop_reason")
        self.is_whole = self.is_whole or bool(reason)
        if reason and self._has_calls and reason not in self._OWN_REASONS:
            where["stop_reason"] = "tool_use"


def _begun(block: Event) -> tuple[Event, list[Event]]:
    """Return a block as it begins in a stream, and what then comes of it."""
    match block.get("type"):
        case "text":
            return {**block, "text": ""}, [{"type": "text_delta", "text": text_of(block.get("text"))}]
        case "tool_use":
            given = to_json(block.get("input") or {}, inf_nan_mode="null").decode()
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": given}]
        case "thinking":
            deltas = [{"type": "thinking_delta", "thinking": text_of(block.get("thinking"))}]
            if signature := text_of(block.get("signature")):
                deltas.append({"type": "signature_delta", "signature": signature})
            return {**block, "thinking": "", "signature": ""}, deltas
    return block, []


class GeminiAnswer(AnswerReader):
    """Reads Gemini. Each call comes alone and ended: fast-agent takes calls that follow as one."""

    KEY = "candidates"
    END = "finishReason"

    def __init__(self) -> None:
        super().__init__()
        self._ids = CallIds()

    def _corrected(self, event: Event) -> Sequence[Event]:
        candidates = dicts(event.get("candidates"))
        feedback = event.get("promptFeedback")
        is_blocked = isinstance(feedback, dict) and bool(feedback.get("blockReason"))
        self.is_whole = self.is_whole or is_blocked or any(each.get("finishReason") for each in candidates)
        content = candidates[0].get("content") if candidates else None
        parts = dicts(content.get("parts")) if isinstance(content, dict) else []
        calls = [each["functionCall"] for each in parts if isinstance(each.get("functionCall"), dict)]
        for call in calls:
            call["args"] = arguments_object(call.get("args"))
            if call_id := text_of(call.get("id")):
                call["id"] = self._ids.unique(call_id)
        if not calls:
            return (event,)
        first = candidates[0]
        empty = {**first, "content": {"role": "model", "parts": []}}
        return [*(_alone(first, part) for part in parts), {**event, "candidates": [empty, *candidates[1:]]}]

    def _streamed(self, document: Event) -> Sequence[Event]:
        return self._corrected(document)


def _alone(candidate: Event, part: Event) -> Event:
    """Return an event with one part of a candidate, which ends if that is a call."""
    alone = {**candidate, "content": {"role": "model", "parts": [part]}}
    alone.pop("finishReason", None)
    if "functionCall" in part:
        alone["finishReason"] = "STOP"
    return {"candidates": [alone]}


def reader_of(path: str) -> AnswerReader | None:
    """Return a reader for what a server answers at that path of its API; None if no model answers there."""
    last = path.rstrip("/").rpartition("/")[2]
    if path.rstrip("/").endswith("/chat/completions"):
        return ChatAnswer()
    if last == "responses":
        return ResponsesAnswer()
    if last == "messages":
        return MessagesAnswer()
    if last.endswith((":generateContent", ":streamGenerateContent")):
        return GeminiAnswer()
    return None
