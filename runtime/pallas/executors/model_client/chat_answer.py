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

from .answer_errors import NothingSaidError, ReportedError, UnreadableCallError, error_in
from .answer_reader import AnswerReader, CallIds, Event, dicts, text_of
from .call_arguments import whole_arguments

_FINISHED: Final = "tool_calls"
_CUT: Final = "length"
_FILTERED: Final = "content_filter"
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

    @property
    def text(self) -> str:
        """What has arrived."""
        return "".join(self.parts)

    def add(self, text: str) -> None:
        """Append the text of another piece. Some servers begin with ``{}``, and the arguments follow it."""
        if not text:
            return
        if self.parts == ["{}"]:
            self.parts.clear()
            self.depth, self.has_begun = 0, False
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
    is_named: bool = False
    """Whether the client has its name."""
    is_ended: bool = False
    """Whether the client has its arguments."""

    def has(self, name: str, arguments: str) -> bool:
        """Whether these are its name and its arguments: it is sent again."""
        return name == self.name and arguments == self.arguments.text


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
        self._choice: int | None = None
        """The index of the choice that is read: of several, the client gets one."""
        self._has_said = False
        """Whether there was a piece of text."""
        self._has_new_calls = False
        """Whether calls came in ``tool_calls``, and not in the older ``function_call``."""

    def name_of_text(self, data: bytes) -> str | None:
        try:
            choice = _TEXT_PIECE.decode(data).choices[0]
        except msgspec.MsgspecError:
            return None
        delta = choice.delta
        if choice.index or not (delta.content or delta.reasoning_content):
            return None
        if self._choice is None:
            self._choice = 0
        self._has_said = self._has_said or bool(delta.content)
        return "" if self._choice == 0 else None

    def _idle(self) -> Sequence[Event]:
        return ({"choices": []},)

    def _corrected(self, event: Event) -> Sequence[Event]:
        choice = self._chosen(event.get("choices"))
        event["choices"] = [] if choice is None else [choice]
        if choice is None:
            return (event,)
        if (error := error_in(choice, "delta")) is not None:
            raise error
        choice["index"] = 0
        if type(choice.get("logprobs")) is not dict:
            choice.pop("logprobs", None)
        delta = choice.get("delta")
        if type(delta) is str or (delta is None and type(choice.get("text")) is str):
            choice["delta"] = delta = {"content": choice.pop("text", None) if delta is None else delta}
        if type(delta) is not dict:
            message = choice.pop("message", None)
            is_again = self._has_said or bool(self._calls)  # the whole, behind its pieces
            choice["delta"] = delta = message if type(message) is dict and not is_again else {}
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

    def _chosen(self, choices: Any) -> Event | None:
        """Return the choice that is read, the first one with the lowest index; None if it is not there."""
        found = [choices] if type(choices) is dict else dicts(choices) if type(choices) is list else []
        if not found:
            return None
        if self._choice is None:
            self._choice = min(map(_index_of, found))
        return next((each for each in found if _index_of(each) == self._choice), None)

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
                text = whole_arguments(call.arguments.text, is_cut=reason == _CUT)
                function = {"arguments": text} if call.is_named else {"name": call.name, "arguments": text}
                found.append({"index": call.index, "function": function})
        return found

    def _whole(self, document: Event) -> Event:
        chosen = self._chosen(document["choices"])
        document["choices"] = [] if chosen is None else [chosen]
        for choice in document["choices"]:
            choice["index"] = 0
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
        if reason in (_FILTERED, _CUT) and not (self._has_said or self._calls):
            raise NothingSaidError(f"finish_reason {reason}")
        if reason == _FILTERED:  # a client would take it for an error, and lose the text
            reason = "stop"
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
            delta["content"] = _text_of_parts(delta["content"]) or None
        if delta.get("role"):
            delta["role"] = "assistant"
        if delta.get("refusal") and not delta.get("content"):  # these are the words that the user is to read
            delta["content"] = delta["refusal"]
        self._has_said = self._has_said or bool(delta.get("content"))
        calls = delta.pop("tool_calls", None)
        pieces = [calls] if type(calls) is dict else dicts(calls)
        old = delta.pop("function_call", None)
        self._has_new_calls = self._has_new_calls or bool(pieces)
        if type(old) is dict and not self._has_new_calls:  # as it was before there were several calls
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
        sent_index = _number(index)
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
        if not call.arguments.parts:
            call.name = name if name.startswith(call.name) else call.name + name
        call.name = call.name or name
        if is_new or not (name and call.arguments.is_whole):
            call.arguments.add(arguments)
        shown = {}
        if call.name and call.arguments.parts and not call.is_named:  # until then more of it may come
            call.is_named = True
            shown = {"name": call.name}
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
            if not (name and call.arguments.is_whole):
                return call
            return (
                call
                if self._last_of.get((sent_id, sent_index)) is call and call.has(name, arguments)
                else None
            )
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
        is_rest = not call.arguments.parts and not sent_id and sent_index is not None
        if name and (call.arguments.is_whole or (call.name not in ("", name) and not is_rest)):
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


def _text_of_parts(content: Any) -> str:
    """Return the text of a piece's content: of a text, a part, or several; a part's text may have a value."""
    if isinstance(content, list):
        return "".join(map(_text_of_parts, content))
    if isinstance(content, dict):
        return _text_of_parts(content.get("text", content.get("value")))
    return text_of(content)


def _index_of(choice: Event) -> int:
    return _number(choice.get("index")) or 0


def _number(index: Any) -> int | None:
    """Return an index, also one that is sent as a text or a float."""
    if isinstance(index, str) and index.isascii() and index.isdigit():
        return int(index[:9])
    if isinstance(index, float) and index.is_integer():
        return int(index)
    return index if type(index) is int else None
