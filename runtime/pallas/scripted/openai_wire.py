"""Answers in OpenAI's form: one JSON object, or server-sent events."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from .script_rules import ScriptRule
from .scripted_conversation import ScriptedConversation
from .template import Facts, fill

# A long answer is cut into larger pieces, so that neither pace nor overhead grows with it.
_MAX_PIECES: Final = 400
_FRAGMENT: Final = 24
_CHARACTERS_PER_TOKEN: Final = 4
_TOKENS_PER_IMAGE: Final = 85
_WORD: Final = re.compile(r"\s*\S+|\s+$")

DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class ScriptedToolCall:
    """A call as the model asks for it; ``arguments`` is JSON text."""

    id: str
    tool: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """What a rule answers to a conversation."""

    text: str
    calls: tuple[ScriptedToolCall, ...]
    prompt_tokens: int
    completion_tokens: int

    @property
    def finish_reason(self) -> str:
        """``tool_calls`` when tools are to be called, else ``stop``."""
        return "tool_calls" if self.calls else "stop"

    @property
    def usage(self) -> dict[str, int]:
        """Counted as about four characters a token: the same for the same words."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class Head:
    """The common fields of every object of one answer; ``created`` in Unix seconds."""

    id: str
    created: int
    model: str


def answer_of(rule: ScriptRule, facts: Facts) -> ScriptedAnswer:
    """The rule's words and calls, filled in."""
    seen = facts.seen
    text = rule.say.render(facts) if rule.say else ""
    calls = tuple(
        # Numbered on from the calls before: the same conversation always gets the same ids.
        ScriptedToolCall(
            f"call_{number}", call.tool, json.dumps(fill(call.arguments, facts), ensure_ascii=False)
        )
        for number, call in enumerate(rule.calls, seen.calls + 1)
    )
    written = len(text) + sum(len(call.tool) + len(call.arguments) for call in calls)
    return ScriptedAnswer(text, calls, _prompt_tokens(seen), _tokens(written))


def completion(head: Head, answer: ScriptedAnswer) -> dict[str, Any]:
    """The answer as one object."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.calls:
        message["tool_calls"] = [_call(call, call.arguments) for call in answer.calls]
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason, "logprobs": None}
    return {**_object(head, "chat.completion"), "choices": [choice], "usage": answer.usage}


def chunks(head: Head, answer: ScriptedAnswer, *, usage: bool) -> Iterator[bytes]:
    """The answer as events, the first and the last ``[DONE]`` included."""

    def event(choices: list[dict[str, Any]], **more: Any) -> bytes:
        body = {**_object(head, "chat.completion.chunk"), "choices": choices, **more}
        return b"data: " + json.dumps(body).encode() + b"\n\n"

    def delta(content: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return event([{"index": 0, "delta": content, "finish_reason": finish_reason, "logprobs": None}])

    yield delta({"role": "assistant", "content": ""})
    for piece in _pieces(answer.text):
        yield delta({"content": piece})
    for index, call in enumerate(answer.calls):
        yield delta({"tool_calls": [{"index": index, **_call(call, "")}]})
        for start in range(0, len(call.arguments), _FRAGMENT):
            fragment = call.arguments[start : start + _FRAGMENT]
            yield delta({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})
    yield delta({}, answer.finish_reason)
    if usage:
        yield event([], usage=answer.usage)
    yield DONE


def error_body(message: str, status: int) -> dict[str, Any]:
    """An error as OpenAI writes it."""
    kind = (
        "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    )
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def _object(head: Head, kind: str) -> dict[str, Any]:
    return {"id": head.id, "object": kind, "created": head.created, "model": head.model}


def _call(call: ScriptedToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": arguments}}


def _pieces(text: str) -> list[str]:
    """``text`` cut at word boundaries; joined again it is the same."""
    words = _WORD.findall(text)
    size = -(-len(words) // _MAX_PIECES) or 1
    return ["".join(words[start : start + size]) for start in range(0, len(words), size)]


def _prompt_tokens(seen: ScriptedConversation) -> int:
    return _tokens(seen.characters) + _TOKENS_PER_IMAGE * seen.images


def _tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)
