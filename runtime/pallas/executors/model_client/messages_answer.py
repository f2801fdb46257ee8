"""Reads the streams of Anthropic's Messages."""

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from pydantic_core import to_json

from .answer_reader import AnswerReader, CallIds, Event, dicts, text_of
from .call_arguments import arguments_object, whole_arguments


class _TextDelta(msgspec.Struct):
    type: Literal["text_delta", "thinking_delta"]
    text: str = ""
    thinking: str = ""


class _TextOfMessage(msgspec.Struct):
    type: Literal["content_block_delta"]
    index: int
    delta: _TextDelta
    object: None = None
    error: None = None


_TEXT_OF_MESSAGE: Final = msgspec.json.Decoder(_TextOfMessage)
_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "",
    "citations_delta": "",
    "compaction_delta": "",
}
"""Pieces of blocks that a client knows, and the text in them."""
_BLOCKS: Final[dict[Any, Event]] = {
    "text_delta": {"type": "text", "text": ""},
    "thinking_delta": {"type": "thinking", "thinking": "", "signature": ""},
}
"""The block that a piece without one begins."""
_OF_A_MESSAGE: Final = frozenset(
    {"content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop"}
)


class MessagesAnswer(AnswerReader):
    """Reads Messages. Each block has an index and each call an id of its own."""

    KEY = "content"
    END = "stop_reason or message_stop"
    _REFUSED: Final = "refusal"
    """The reason whose calls are not made."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = CallIds()
        self._index_of: dict[Any, int] = {}
        self._blocks = 0
        self._has_calls = False
        self._has_begun = False
        self._has_reason = False
        self._open: dict[int, None] = {}
        """The indexes of blocks that have not ended."""
        self._inputs: dict[int, list[str]] = {}
        """The texts of inputs so far, by the index of their block: a library completes one that is cut."""

    def name_of_text(self, data: bytes) -> str | None:
        try:
            piece = _TEXT_OF_MESSAGE.decode(data)
        except msgspec.MsgspecError:
            return None
        is_known = self._index_of.get(piece.index) == piece.index and piece.index in self._open
        return piece.type if is_known else None

    def _corrected(self, event: Event) -> Sequence[Event]:
        kind = event.get("type")
        if kind == "message_start":
            if self._has_begun:
                return ()
            self._has_begun = True
            self._correct_message(event)
            return (event,)
        if kind not in _OF_A_MESSAGE:
            return (event,)
        begin = () if self._has_begun else self._corrected({"type": "message_start"})
        return (*begin, *self._of_message(kind, event))

    def _of_message(self, kind: str, event: Event) -> Sequence[Event]:
        match kind:
            case "content_block_start":
                return self._started(event)
            case "content_block_delta":
                return self._continued(event.get("index"), event.get("delta"))
            case "content_block_stop":
                index = self._place(event.get("index"))
                return self._ended(index) if index in self._open else ()
            case "message_delta":
                delta = event.get("delta")
                event["delta"] = delta = delta if isinstance(delta, dict) else {}
                if not isinstance(event.get("usage"), dict):
                    event["usage"] = {"output_tokens": 0}
                reason = delta.get("stop_reason")
                self._correct_reason(delta)
                return (*self._all_ended(reason), event)
        self.is_whole = True
        reason = None if self._has_reason else {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
        return (*self._all_ended(), *(self._of_message("message_delta", reason) if reason else ()), event)

    def _place(self, index: Any) -> int:
        """Return the index that a client has for one that was sent: without one, that of the last block."""
        known = self._index_of.get(index) if isinstance(index, int | str) else None
        return max(self._blocks - 1, 0) if known is None else known

    def _started(self, event: Event) -> Sequence[Event]:
        sent = event.get("index")
        if isinstance(sent, int | str):
            self._index_of[sent] = self._blocks
        event["index"] = place = self._blocks
        self._open[place] = None
        self._blocks += 1
        block = event.get("content_block")
        event["content_block"] = block = block if isinstance(block, dict) else {"type": "text", "text": ""}
        self._correct_block(block)
        if block.get("type") not in ("text", "thinking"):
            return (event,)
        event["content_block"], deltas = _begun(block)
        return (event, *(_delta(place, each) for each in deltas if any(map(each.get, ("text", "thinking")))))

    def _continued(self, sent: Any, delta: Any) -> Sequence[Event]:
        kind = delta.get("type") if isinstance(delta, dict) else None
        if kind not in _DELTAS:
            return ()
        begin: Sequence[Event] = ()
        if self._place(sent) not in self._open and (block := _BLOCKS.get(kind)) is not None:
            begin = self._started({"type": "content_block_start", "index": sent, "content_block": {**block}})
        place = self._place(sent)
        if kind == "input_json_delta":
            given = delta.get("partial_json")
            text = to_json(given, inf_nan_mode="null").decode() if isinstance(given, dict) else text_of(given)
            self._inputs.setdefault(place, []).append(text)
            return ()
        if (name := _DELTAS[kind]) and not text_of(delta.get(name)):
            return begin
        return (*begin, _delta(place, delta))

    def _ended(self, index: int, reason: Any = None) -> Sequence[Event]:
        """Return the end of a block, and before it its input as one piece, now that it is whole."""
        del self._open[index]
        parts = self._inputs.pop(index, None)
        stop = {"type": "content_block_stop", "index": index}
        if parts is None:
            return (stop,)
        text = whole_arguments("".join(parts), is_cut=reason == "max_tokens")
        return (_delta(index, {"type": "input_json_delta", "partial_json": text}), stop)

    def _all_ended(self, reason: Any = None) -> Sequence[Event]:
        return [each for index in list(self._open) for each in self._ended(index, reason)]

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
        self._has_reason = self._has_reason or bool(reason)
        if self._has_calls and reason and reason != self._REFUSED:
            where["stop_reason"] = "tool_use"


def _delta(index: int, delta: Event) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": delta}


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
