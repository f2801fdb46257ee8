"""Chat completions as OpenAI streams them, made of what other servers stream.

Pieces of calls are joined by their id, then by their index, then by their position. What a client gets has
one index and one id for each call, its name once, its arguments at the end, where they are whole, and
``tool_calls`` as the reason for its end.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
from pydantic_core import to_json

from .answer_errors import ReportedError, UnreadableCallError, error_in
from .answer_reader import AnswerReader, CallIds, Event, dicts, text_of
from .call_arguments import whole_arguments

_FINISHED: Final = "tool_calls"
_CUT: Final = "length"
_TEXTS: Final = ("role", "refusal", "reasoning_content")
"""Fields of a piece that are a text or null."""
_PLAIN: Final = frozenset({str, type(None)})
_TOKENS: Final = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)


class _TextDelta(msgspec.Struct, forbid_unknown_fields=True):
    content: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    role: str | None = None


class _TextChoice(msgspec.Struct):
    index: int
    delta: _TextDelta
    finish_reason: None = None
    error: None = None
    type: None = None
    object: None = None


class _TextPiece(msgspec.Struct):
    """A piece of a text in which nothing is to be corrected."""

    choices: tuple[_TextChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    error: None = None
    type: None = None
    base_resp: None = None


_TEXT_PIECE: Final = msgspec.json.Decoder(_TextPiece)


@dataclass(slots=True)
class _Arguments:
    """The JSON text of a call's arguments, as far as it has arrived, read once."""

    parts: list[str] = field(default_factory=list)
    depth: int = 0
    has_begun: bool = False
    is_in_text: bool = False
    is_escaped: bool = False
    """Whether the last part ended within an escape sequence."""

    @property
    def is_whole(self) -> bool:
        """Whether it is one object or array by now."""
        return self.has_begun and self.depth <= 0

    def add(self, text: str) -> None:
        """Append the text of another piece."""
        if not text:
            return
        self.parts.append(text)
        start, self.is_escaped = int(self.is_escaped), False
        for found in _TOKENS.finditer(text, start):
            token = found[0]
            if token[0] == "\\":
                self.is_escaped = len(token) == 1
            elif token == '"':
                self.is_in_text = not self.is_in_text
            elif not self.is_in_text:
                self.has_begun = True
                self.depth += 1 if token in "{[" else -1


@dataclass(slots=True)
class _Call:
    index: int
    id: str
    """What the client gets."""
    name: str
    sent_id: str
    arguments: _Arguments = field(default_factory=_Arguments)
    is_ended: bool = False
    """Whether the client has its arguments."""


class ChatAnswer(AnswerReader):
    """Reads chat completions."""

    KEY = "choices"
    END = "finish_reason or [DONE]"

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[_Call] = []
        self._last_of: dict[tuple[str, int | None] | str | int, _Call] = {}
        """The last call with an id and index, with an id, and with an index."""
        self._ids = CallIds()
        self._is_open = False
        """Whether calls came after the last reason for the end."""

    def name_of_text(self, data: bytes) -> str | None:
        try:
            delta = _TEXT_PIECE.decode(data).choices[0].delta
        except msgspec.MsgspecError:
            return None
        return "" if delta.content or delta.reasoning_content else None

    def _corrected(self, event: Event) -> Sequence[Event]:
        choices = event.get("choices")
        if type(choices) is not list:
            event["choices"] = choices = []
        if not choices:
            return (event,)
        choice = choices[0]
        if type(choice) is not dict:
            event["choices"] = dicts(choices)
            return (event,) if not event["choices"] else self._corrected(event)
        if (error := error_in(choice, "delta")) is not None:
            raise error
        if type(choice.get("index")) is not int:
            choice["index"] = 0
        delta = choice.get("delta")
        if type(delta) is not dict:
            message = choice.pop("message", None)
            choice["delta"] = delta = message if type(message) is dict else {}
            self._correct_delta(delta, event, in_pieces=False)
        else:
            self._correct_delta(delta, event)
        finish = choice.get("finish_reason")
        if finish is not None:
            choice["finish_reason"] = None
        if not finish:
            return (event,)
        if not self._calls:
            choice["finish_reason"] = self._finish(text_of(finish))
            return (event,)
        return (event, *self._ending(text_of(finish), event))

    def rest(self) -> Sequence[Event]:
        """Also a reason for the end where calls have none."""
        super().rest()
        if not self._is_open:
            return ()
        return self._ending("", {"id": "", "object": "chat.completion.chunk"})

    def _ending(self, reason: str, event: Event) -> Sequence[Event]:
        """Return events like ``event`` that end the calls: their arguments, which are whole now, and why."""
        finish = self._finish(reason)
        rest = {key: value for key, value in event.items() if key not in ("choices", "usage")}
        ended = {"index": 0, "delta": {"tool_calls": self._arguments(reason)}, "finish_reason": None}
        over = {"index": 0, "delta": {}, "finish_reason": finish}
        return ({**rest, "choices": [ended]}, {**rest, "choices": [over]})

    def _arguments(self, reason: str) -> list[Event]:
        found = []
        for call in self._calls:
            if not call.is_ended:
                call.is_ended = True
                text = whole_arguments("".join(call.arguments.parts), is_cut=reason == _CUT)
                found.append({"index": call.index, "function": {"arguments": text}})
        return found

    def _whole(self, document: Event) -> Event:
        for choice in dicts(document["choices"])[:1]:
            if (error := error_in(choice, "message")) is not None:
                raise error
            message = choice.get("message")
            if isinstance(message, dict):
                self._correct_delta(message, document, in_pieces=False)
                reason = text_of(choice.get("finish_reason"))
                for call, ended in zip(
                    dicts(message.get("tool_calls")), self._arguments(reason), strict=True
                ):
                    del call["index"]
                    call["function"] |= ended["function"]
            choice["finish_reason"] = self._finish(text_of(choice.get("finish_reason")))
        return document

    def _streamed(self, document: Event) -> Sequence[Event]:
        self.is_whole = True
        usage = {"choices": [], "usage": document.pop("usage")} if document.get("usage") else None
        return (*self._corrected(document), *((usage,) if usage else ()))

    def _finish(self, reason: str) -> str:
        """Return the reason for the end that a client gets."""
        self.is_whole = True
        self._is_open = False
        if reason == "error":
            raise ReportedError("it ended its answer with the finish_reason 'error'")
        if not all(call.name for call in self._calls):
            raise UnreadableCallError("it called a tool without its name")
        return _FINISHED if self._calls else reason or "stop"

    def _correct_delta(self, delta: Event, event: Event, *, in_pieces: bool = True) -> None:
        for name in _TEXTS:
            if name in delta and type(delta[name]) not in _PLAIN:
                delta[name] = None
        if type(delta.get("content")) not in _PLAIN:
            delta["content"] = _text_of_parts(delta["content"])
        calls = delta.pop("tool_calls", None)
        pieces = [calls] if type(calls) is dict else dicts(calls)
        old = delta.pop("function_call", None)
        if type(old) is dict:  # as it was before there were several calls
            pieces.append({"function": old})
        answer_id = text_of(event.get("id"))
        found = [
            made
            for position, piece in enumerate(pieces)
            if (made := self._piece(piece, position, answer_id, in_pieces=in_pieces)) is not None
        ]
        self._is_open = self._is_open or bool(pieces)
        if found:
            delta["tool_calls"] = found

    def _piece(self, piece: Event, position: int, answer_id: str, *, in_pieces: bool) -> Event | None:
        """Return the begin of a call, or its name, as a client gets it; None for any other piece."""
        function = piece.get("function")
        function = function if isinstance(function, dict) else piece
        name, arguments = text_of(function.get("name")), _arguments(function.get("arguments"))
        sent_id = text_of(piece.get("id"))
        index = piece.get("index")
        sent_index = index if type(index) is int else None
        if not (name or arguments or sent_id):
            return None
        call = self._continued(sent_id, sent_index, position, name, arguments) if in_pieces else None
        is_new = call is None
        if call is None:
            made_id = self._ids.unique(sent_id or _made_id(answer_id, len(self._calls)))
            call = _Call(len(self._calls), made_id, "", sent_id)
            self._calls.append(call)
        call.sent_id = call.sent_id or sent_id
        for key in ((sent_id, sent_index), sent_id, sent_index):
            if key is not None:
                self._last_of[key] = call
        shown = {} if call.name or not name else {"name": name}
        call.name = call.name or name
        call.arguments.add(arguments)
        if not is_new and not shown:
            return None
        found: Event = {"index": call.index, "function": {"arguments": "", **shown}}
        return {**found, "id": call.id, "type": "function"} if is_new else found

    def _continued(
        self, sent_id: str, sent_index: int | None, position: int, name: str, arguments: str
    ) -> _Call | None:
        """Return the call that a piece belongs to; None if it begins another one.

        A name begins a call, unless the arguments of the one before are still incomplete.
        """
        if sent_id and (call := self._last_of.get(sent_id)) is not None:
            if sent_index is not None and (same := self._last_of.get((sent_id, sent_index))) is not None:
                call = same
            elif sent_index is not None and name and not call.arguments.parts:
                return None
            return None if name and call.arguments.is_whole else call
        if sent_index is not None:
            call = self._last_of.get(sent_index)
        elif sent_id and name:
            return None
        else:
            call = self._calls[position] if 0 < position < len(self._calls) else self._last()
        if call is None:
            return None
        if sent_id and call.sent_id and (name or (call.arguments.is_whole and arguments)):
            return None  # without a name: some servers make another id for each piece
        if name and (call.arguments.is_whole or call.name not in ("", name)):
            return None
        return call

    def _last(self) -> _Call | None:
        return self._calls[-1] if self._calls else None


def _arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else to_json(value, inf_nan_mode="null").decode()


def _made_id(answer_id: str, number: int) -> str:
    """Return an id that is the same when the same answer is read again."""
    return f"call_{hashlib.sha256(f'{answer_id}/{number}'.encode()).hexdigest()[:24]}"


def _text_of_parts(content: Any) -> str | None:
    texts = [text_of(each.get("text")) for each in dicts(content)]
    return "".join(texts) or None
