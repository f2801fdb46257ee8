"""Converts a handler's return value or stream to an answer: sanitised text, or a Fault."""

import inspect
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from pallas.handlers import Chunk, Error, PromptRequest, PromptResult, StreamEvent
from pallas.handlers import Final as Whole
from pallas.model import Fault, FaultType, Usage
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize

from .handler_shape import HandlerMethods

log = logging.getLogger(__name__)

MAX_ANSWER: Final = 16 * 1024 * 1024
"""The limit of one answer in characters; a handler that writes more is stopped. Callers get less."""
# The stop reasons as in the results of all other agents.
_REASONS: Final = {
    "end_turn": "endTurn",
    "max_turns": "maxTurns",
    "cancelled": "cancelled",
    "max_tokens": "maxTokens",
    "content_filter": "contentFilter",
}


@dataclass(frozen=True, slots=True)
class HandlerAnswer:
    """An answer for the kernel; the text is sanitised."""

    text: str
    stop_reason: str = "endTurn"
    usage: Usage = field(default_factory=Usage)


class Drafting:
    """Emits the pieces of an answer as they come, sanitised, until it ends."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._is_ended = False

    def add(self, text: str) -> None:
        """Add a piece."""
        if text and not self._is_ended:
            self._tell(sanitize(text))

    def end(self) -> None:
        """Stop emitting: no caller listens any more."""
        self._is_ended = True


async def answer_of(shape: HandlerMethods, request: PromptRequest, drafting: Drafting) -> HandlerAnswer:
    """Call the handler. Raises Fault for an invalid answer, and any exception of the handler.

    If it has both methods, ``stream`` answers a caller that wants streamed text. Without ``stream`` such a
    caller gets the answer in one piece (DR-26).
    """
    if shape.stream is not None and (request.stream or shape.prompt is None):
        return await _streamed(shape.stream(request), drafting)
    assert shape.prompt is not None
    answer = _result(await shape.prompt(request), "prompt returned")
    drafting.add(answer.text)
    return answer


async def _streamed(given: Any, drafting: Drafting) -> HandlerAnswer:
    events = await given if inspect.isawaitable(given) else given
    if not hasattr(events, "__aiter__"):
        raise _unfit("stream gave", events, "yield from it: Chunk, Final and Error")
    pieces: list[str] = []
    size = 0
    closed = aclosing(events) if hasattr(events, "aclose") else _Nothing()
    async with closed:
        async for event in events:
            match _event(event):
                case Chunk(text=text):
                    size += len(text)
                    if size > MAX_ANSWER:
                        raise Fault(
                            FaultType.UPSTREAM, f"its answer is longer than {MAX_ANSWER:,} characters"
                        )
                    pieces.append(text)
                    drafting.add(text)
                case Whole(result=result):
                    answer = _result(result, "the stream's final event holds")
                    if not pieces:  # no caller has received any of it yet
                        drafting.add(answer.text)
                    return answer
                case Error(message=message, retryable=retryable):
                    text = one_line(redact_text(message), 300) or "it failed and did not say why"
                    raise Fault(FaultType.UPSTREAM, text, retryable=retryable)
    return HandlerAnswer(sanitize("".join(pieces)))


class _Nothing:
    """A stand-in for ``aclose`` of an iterator that is no generator."""

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


def _event(event: Any) -> StreamEvent:
    """Return an event, given as one or as plain values: a text, or ``{"type": "chunk",
    "text": ...}``."""
    if isinstance(event, str):
        return Chunk(event)
    if isinstance(event, Mapping):
        kind = event.get("type")
        if kind == "chunk" and isinstance(event.get("text"), str):
            return Chunk(event["text"])
        if kind == "final" and "result" in event:
            return Whole(event["result"])
        if kind == "error":
            return Error(str(event.get("message", "")), event.get("retryable") is True)
    if isinstance(event, Chunk) and isinstance(event.text, str):
        return event
    if isinstance(event, Error) and isinstance(event.message, str):
        return event
    if isinstance(event, Whole):
        return event
    raise _unfit("stream yielded", event, "yield Chunk(text), Final(result), Error(message)")


def _result(given: Any, what: str) -> HandlerAnswer:
    if isinstance(given, str):
        text, reason, usage = given, "end_turn", None
    elif isinstance(given, PromptResult):
        text, reason, usage = given.text, given.stop_reason, given.usage
    elif isinstance(given, Mapping) and "text" in given:
        text, usage = given["text"], given.get("usage")
        reason = given.get("stop_reason") or given.get("stopReason") or "end_turn"
    else:
        raise _unfit(what, given, "return the answer's text, or a PromptResult")
    if not isinstance(text, str):
        raise _unfit(f"{what} a result whose text is", text, "write it as a str")
    if reason not in _REASONS:
        raise _unfit(f"{what} a stop_reason that is", reason, f"allowed: {', '.join(_REASONS)}")
    if len(text) > MAX_ANSWER:
        raise Fault(FaultType.UPSTREAM, f"its answer is longer than {MAX_ANSWER:,} characters")
    return HandlerAnswer(sanitize(text), _REASONS[reason], _usage(usage))


def _usage(given: Any) -> Usage:
    """Return the tokens, given as ``Usage`` or as ``{"inputTokens": 1}``; invalid counts are ignored."""
    if given is None:
        return Usage()
    pair = []
    for snake, camel in (("input_tokens", "inputTokens"), ("output_tokens", "outputTokens")):
        value = (
            given.get(snake, given.get(camel)) if isinstance(given, Mapping) else getattr(given, snake, None)
        )
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        pair.append(value if whole else None)
    return Usage(pair[0], pair[1], given.cost if isinstance(given, Usage) else None).without_steps


def _unfit(what: str, value: Any, hint: str) -> Fault:
    shown = f"{value!r:.60}" if isinstance(value, str) else type(value).__name__
    return Fault(FaultType.UPSTREAM, f"its {what} {one_line(shown, 80)}; {hint}")
