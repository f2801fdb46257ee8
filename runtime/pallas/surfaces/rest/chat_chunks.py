"""A run's events as the SSE chunks that its caller reads while it runs (AG-15, AG-30).

The chunks are ``text``, ``thinking``, ``tool_call``, ``tool_result``, ``retry``, then ``final`` or ``error``.
All text chunks together are the text of the answer (AG-16), unless a ``rollback`` comes between them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pallas.model import (
    Event,
    Fault,
    LoopMessage,
    ModelRetry,
    QuestionAnswered,
    QuestionAsked,
    RunContinued,
    RunResult,
    StepStarted,
    TextDelta,
    ToolEvent,
    codec,
)
from pallas.model.money import cost_fields
from pallas.model.redaction import redact_text
from pallas.runs.retried_text import RetriedText, TextPart
from pallas.safe_text import one_line, sanitize

from .http_faults import body_of

Chunk = dict[str, Any]

MAX_DELTA: Final = 64 * 1024
"""Characters of one chunk of text; longer ones are sent in parts."""
MAX_NAME: Final = 200
_BETWEEN: Final = "\n\n"


class Chunks:
    """Turns the events of one run of ``agent``, in order, into chunks for its caller.

    The text of called agents is not included. If a model's attempt is retracted (a provider broke off and
    is asked again), its chunks are not retracted at once: as long as the next attempt produces the same
    text, no chunk is sent, and a ``rollback`` is sent only where it differs. A rollback voids the text
    since the last tool chunk, or since the start.

    ``said`` are texts of the answer that another fleet sent.
    """

    def __init__(self, agent: str, said: Iterable[str] = ()) -> None:
        self._agent = agent
        self._blocks: list[str] = [sanitize(text) for text in said]
        self._block = RetriedText()
        self._said = False
        self._fallback = False
        self._names: dict[str, str] = {}

    def hear(self, event: Event) -> Iterator[Chunk]:
        """Yield the chunks of an event: none, one or several."""
        if isinstance(event, TextDelta):
            yield from self._text(event)
        elif isinstance(event, LoopMessage):
            yield from self._said_of(event)
        elif isinstance(event, ToolEvent):
            yield from self._tool_event(event)
        elif isinstance(event, StepStarted) and event.actor == self._agent:
            yield from self._end_block()
        elif isinstance(event, RunContinued) and event.agent == self._agent:
            yield {"type": "continued", "attempt": event.attempt, "calls": list(event.calls)}
        elif isinstance(event, QuestionAsked):
            yield {
                "type": "question",
                "question": event.question,
                "kind": event.kind,
                "tool": event.tool,
                "server": event.server,
                "message": event.message,
                "callId": event.call_id,
                "expiresAt": event.expires_at,
            }
        elif isinstance(event, QuestionAnswered):
            yield {
                "type": "question_answered",
                "question": event.question,
                "action": event.action,
                "by": event.by,
                "reason": event.reason,
            }
        elif isinstance(event, ModelRetry) and event.agent == self._agent:
            yield {
                "type": "retry",
                "reason": event.reason,
                "retry": event.retry,
                "retries": event.retries,
                "wait": round(event.wait, 3),
            }

    def result(self, result: RunResult) -> Iterator[Chunk]:
        """Yield the part of the answer that was not sent yet, and the last chunk."""
        yield from self._settle()
        texts = [clean for text in result.texts if (clean := sanitize(text))]
        sent_blocks = [*self._blocks, *([self._block.sent] if self._block.sent else [])]
        if not sent_blocks or len(texts) >= len(sent_blocks):
            yield from self._rest(sent_blocks, texts)
        yield final(result)

    def fault(self, fault: Fault) -> Iterator[Chunk]:
        """Yield the text that was not sent yet, and the last chunk of a failed run."""
        yield from self._settle()
        partial = fault.data.get("partial")
        sent_text = _BETWEEN.join([*self._blocks, *([self._block.sent] if self._block.sent else [])])
        if isinstance(partial, str) and len(partial) > len(sent_text) and partial.startswith(sent_text):
            yield from _parts("text", sanitize(partial[len(sent_text) :]))
        yield error(fault)

    # Text

    def _text(self, event: TextDelta) -> Iterator[Chunk]:
        if event.actor not in ("", self._agent):
            return
        if event.reasoning:
            if event.text:
                yield from _parts("thinking", event.text)
            return
        yield from self._part(self._block.add(event.text, rollback=event.rollback))

    def _part(self, part: TextPart | None) -> Iterator[Chunk]:
        if part is None:
            return
        if part.voids:
            yield {"type": "rollback"}
        begins = part.text and part.text == self._block.sent
        yield from _parts("text", (_BETWEEN if begins and self._blocks else "") + part.text)

    def _settle(self) -> Iterator[Chunk]:
        """End an attempt: if it wrote less than the attempt before, roll back to its text."""
        yield from self._part(self._block.settle())

    def _end_block(self) -> Iterator[Chunk]:
        yield from self._settle()
        if self._block.sent:
            self._blocks.append(self._block.sent)
            self._block = RetriedText()

    def _rest(self, sent_blocks: list[str], texts: list[str]) -> Iterator[Chunk]:
        if sent_blocks:
            before, last = texts[len(sent_blocks) - 1], sent_blocks[-1]
            if len(before) > len(last) and before.startswith(last):
                yield from _parts("text", before[len(last) :])
        for number, text in enumerate(texts[len(sent_blocks) :]):
            yield from _parts("text", (_BETWEEN if sent_blocks or number else "") + text)

    # Tools

    def _said_of(self, event: LoopMessage) -> Iterator[Chunk]:
        yield from self._end_block()
        if self._fallback:
            return
        for call in event.calls:
            self._said = True
            name = self._names[call.id] = one_line(call.name, MAX_NAME)
            yield {"type": "tool_call", "toolName": name, "args": _args(call.arguments)}
        for answer in event.answers:
            name = self._names.pop(answer.call_id, "")
            if name:
                yield {"type": "tool_result", "toolName": name, "ok": answer.ok}

    def _tool_event(self, event: ToolEvent) -> Iterator[Chunk]:
        if event.nested or self._said:
            return
        if event.phase == "started":
            yield from self._end_block()
            self._fallback = True
            name = self._names[event.call_id] = f"{event.server}__{event.tool}"
            yield {"type": "tool_call", "toolName": name, "args": {}}
        elif name := self._names.pop(event.call_id, ""):
            yield {"type": "tool_result", "toolName": name, "ok": event.phase == "completed"}


def final(result: RunResult) -> Chunk:
    """Return the last chunk of a run that was answered."""
    return {
        "type": "final",
        "threadId": result.thread or None,
        "turnIndex": result.turn_index,
        **result.who_answered,
    }


def error(fault: Fault) -> Chunk:
    """Return the last chunk of a run that failed: the same Fault as everywhere (UN-4)."""
    body = body_of(fault)
    # The text it had written was sent.
    data = {key: value for key, value in body["data"].items() if key != "partial"}
    return {"type": "error", "message": body["error"], "data": {**data, "code": body["code"]}}


def answer_of(result: RunResult) -> dict[str, Any]:
    """Return the result of a run as in ``ChatAnswerModel``; its text equals its text chunks joined."""
    counted = result.usage.input_tokens is not None or result.usage.output_tokens is not None
    usage = {"inputTokens": result.usage.input_tokens, "outputTokens": result.usage.output_tokens}
    return {
        "text": sanitize(result.text),
        "threadId": result.thread or None,
        "turnIndex": result.turn_index,
        "runId": result.run_id,
        "stopReason": result.stop_reason,
        "seconds": round(result.seconds, 6),
        "steps": result.steps,
        "tools": result.tools,
        "usage": usage if counted else None,
        **cost_fields(result.usage, result.tree),
        **result.who_answered,
    }


def _parts(kind: str, text: str) -> Iterator[Chunk]:
    for start in range(0, len(text), MAX_DELTA):
        yield {"type": kind, "delta": text[start : start + MAX_DELTA]}


def _args(arguments: Mapping[str, Any]) -> Any:
    """Return the arguments with secrets redacted: a model may repeat a secret that it was given (PR-36)."""
    return _masked(codec.visible(dict(arguments)))


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {_masked(name): _masked(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each) for each in value]
    return value
