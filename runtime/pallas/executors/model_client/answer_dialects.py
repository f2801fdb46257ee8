"""Reads the streams of Google's Gemini, and chooses the reader of each dialect."""

from base64 import b64decode
from collections.abc import Sequence
from typing import Any, Final

from .answer_errors import NothingSaidError, ReportedError, UnreadableCallError
from .answer_reader import AnswerReader, CallIds, Event, dicts, index_in, text_of
from .call_arguments import arguments_object
from .chat_answer import ChatAnswer
from .messages_answer import MessagesAnswer
from .responses_answer import ResponsesAnswer


class GeminiAnswer(AnswerReader):
    """Reads Gemini. Each call comes alone and ended: fast-agent takes calls that follow as one."""

    KEY = "candidates"
    END = "finishReason"

    _KNOWN: Final = frozenset({"STOP", "MAX_TOKENS", "OTHER", "FINISH_REASON_UNSPECIFIED"})
    """Reasons for the end of an answer that may be whole."""
    _FILTERS: Final = frozenset({"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"})

    def __init__(self) -> None:
        super().__init__()
        self._ids = CallIds()
        self._has_said = False
        self._choice: int | None = None
        """The index of the candidate that is read: of several, the client gets one."""

    def _corrected(self, event: Event) -> Sequence[Event]:
        feedback = event.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            why = text_of(feedback.get("blockReasonMessage"))
            raise NothingSaidError(f"blockReason {feedback['blockReason']}{': ' if why else ''}{why}")
        if not isinstance(event.get("usageMetadata"), dict):
            event.pop("usageMetadata", None)
        if "candidates" in event:
            event["candidates"] = self._chosen(dicts(event["candidates"]))
        candidates = dicts(event.get("candidates"))
        content = candidates[0].get("content") if candidates else None
        parts = dicts(content.get("parts")) if isinstance(content, dict) else []
        for part in parts:
            signature = part.get("thoughtSignature")
            if signature is not None and not _is_base64(signature):
                del part["thoughtSignature"]
        self._has_said = self._has_said or any(part.keys() & {"text", "functionCall"} for part in parts)
        if candidates and (reason := candidates[0].get("finishReason")):
            candidates[0]["finishReason"] = self._finish(reason, candidates[0])
            self.is_whole = True
        calls = [each["functionCall"] for each in parts if isinstance(each.get("functionCall"), dict)]
        for call in calls:
            if not text_of(call.get("name")):
                raise UnreadableCallError("it called a tool without its name")
            call["args"] = arguments_object(call.get("args"))
            if type(call.get("id")) is int:
                call["id"] = str(call["id"])
            if call_id := text_of(call.get("id")):
                call["id"] = self._ids.unique(call_id)
        if not calls:
            return (event,)
        first = candidates[0]
        empty = {**first, "content": {"role": "model", "parts": []}}
        return [*(_alone(first, part) for part in parts), {**event, "candidates": [empty]}]

    def _chosen(self, candidates: list[Event]) -> list[Event]:
        if candidates and self._choice is None:
            self._choice = min(index_in(each, "index") for each in candidates)
        return [each for each in candidates if index_in(each, "index") == self._choice][:1]

    def _finish(self, sent: Any, candidate: Event) -> str:
        """Return the reason for the end that a client knows. Raises AnswerError if that is an error."""
        reason = text_of(sent).upper() or "STOP"
        why = text_of(candidate.get("finishMessage"))
        words = f"finishReason {reason}{': ' if why else ''}{why}"
        if reason in self._FILTERS:
            if not self._has_said:
                raise NothingSaidError(words)
        elif reason not in self._KNOWN:
            if not self._has_said or reason.startswith("MALFORMED"):
                raise ReportedError(f"it ended its answer with the {words}")
            return "STOP"
        return reason

    def _streamed(self, document: Event) -> Sequence[Event]:
        return self._corrected(document)


def _is_base64(text: Any) -> bool:
    try:
        b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except (AttributeError, ValueError):
        return False
    return True


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
