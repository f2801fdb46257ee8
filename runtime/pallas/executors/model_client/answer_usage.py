"""Reads the usage in a model's answer, without the rest of it: it is needed as soon as the answer is there.

Providers count differently. OpenAI's input has the cached tokens in it, Anthropic's has not; Google counts
the tokens of thoughts apart from those of the answer. ``StepUsage`` has all of them in its input and output.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from pallas.model import StepUsage
from pallas.model.run_values import MAX_TOKENS

from .answer_document import is_stream

_KEY: Final = b'"usage'
_DATA: Final = b"data:"
_ANTHROPIC: Final = ("message_start", "message_delta")


class _Counted(msgspec.Struct):
    usage: Any = None


class _Candidate(msgspec.Struct):
    finish: Any = msgspec.field(default=None, name="finishReason")


class _Document(msgspec.Struct):
    """An answer, or an event of one, as far as it is read."""

    type: Any = None
    usage: Any = None
    google: Any = msgspec.field(default=None, name="usageMetadata")
    message: _Counted | None = None  # Anthropic's, when it begins
    response: _Counted | None = None  # that of OpenAI's Responses, when it ends
    candidates: list[_Candidate] | None = None

    @property
    def counted(self) -> dict[str, Any]:
        """What it says of its usage."""
        inner = self.message or self.response
        return _dict(self.usage) or _dict(self.google) or _dict(inner.usage if inner else None)

    @property
    def is_part(self) -> bool:
        """Whether Google goes on: what it has written so far is not all of it."""
        return bool(self.candidates) and all(each.finish is None for each in self.candidates or ())


_DECODER: Final = msgspec.json.Decoder(_Document)


def usage_of(body: bytes) -> StepUsage:
    """What an answer used; of one that was cut short as far as it is certain."""
    plain = body.lstrip()
    if is_stream(plain):
        return _of_stream(plain)
    document = _decoded(plain)
    return _usage(document.counted) if document is not None else StepUsage()


def _of_stream(body: bytes) -> StepUsage:
    """The usage that is said last. Anthropic says its input at the beginning."""
    found: dict[str, Any] = {}
    is_whole, end = True, len(body)
    while (at := body.rfind(_KEY, 0, end)) >= 0:
        begin = body.rfind(b"\n", 0, at) + 1
        line = body[begin : _line_end(body, at)]
        end = begin
        event = _decoded(line[len(_DATA) :]) if line.startswith(_DATA) else None
        if event is None or not (counted := event.counted):
            continue
        if event.type not in _ANTHROPIC:
            found, is_whole = counted, not event.is_part
            break
        # It has written something, and has not said how much.
        is_whole = is_whole and (event.type == "message_delta" or bool(found))
        found = {**counted, **{name: value for name, value in found.items() if value is not None}}
        if event.type == "message_start":
            break
    return _usage(found, is_whole=is_whole)


def _line_end(body: bytes, at: int) -> int:
    end = body.find(b"\n", at)
    return len(body) if end < 0 else end


def _decoded(line: bytes) -> _Document | None:
    try:
        return _DECODER.decode(line.strip())
    except (msgspec.DecodeError, UnicodeDecodeError):  # no JSON object, or it broke off
        return None


def _usage(counted: Mapping[str, Any], *, is_whole: bool = True) -> StepUsage:
    if not counted:
        return StepUsage()
    usage = _of_google(counted) if "totalTokenCount" in counted or "promptTokenCount" in counted else None
    usage = usage or (_of_anthropic(counted) if _is_of_anthropic(counted) else _of_openai(counted))
    return usage if is_whole else replace(usage, output=None)


def _is_of_anthropic(usage: Mapping[str, Any]) -> bool:
    return "prompt_tokens" not in usage and any(
        name in usage for name in ("cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation")
    )


def _of_openai(usage: Mapping[str, Any]) -> StepUsage:
    """Chat completions and responses, also as others send them."""
    asked = _dict(usage.get("prompt_tokens_details")) or _dict(usage.get("input_tokens_details"))
    said = _dict(usage.get("completion_tokens_details")) or _dict(usage.get("output_tokens_details"))
    taken = _number(usage, "prompt_tokens", "input_tokens")
    given = _number(usage, "completion_tokens", "output_tokens")
    reasoning = _number({**usage, **said}, "reasoning_tokens")
    total = _number(usage, "total_tokens")
    # Some count the tokens of reasoning beside the others, which shows in the total.
    if taken is not None and given is not None and reasoning and total == taken + given + reasoning:
        given += reasoning
    return StepUsage(
        input=taken,
        output=given,
        cached=_number(
            {**usage, **asked}, "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens"
        ),
        cache_writes=_number({**usage, **asked}, "cache_write_tokens", "cache_creation_input_tokens"),
        reasoning=reasoning,
        input_audio=_number(asked, "audio_tokens"),
        output_audio=_number(said, "audio_tokens"),
        input_image=_number(asked, "image_tokens"),
        output_image=_number(said, "image_tokens"),
    )


def _of_anthropic(usage: Mapping[str, Any]) -> StepUsage:
    """Messages: cached tokens and cache writes are counted apart from the others."""
    taken, read = _number(usage, "input_tokens"), _number(usage, "cache_read_input_tokens")
    written = _number(usage, "cache_creation_input_tokens")
    return StepUsage(
        input=None if taken is None else taken + (read or 0) + (written or 0),
        output=_number(usage, "output_tokens"),
        cached=read,
        cache_writes=written,
        cache_writes_1h=_number(_dict(usage.get("cache_creation")), "ephemeral_1h_input_tokens"),
    )


def _of_google(usage: Mapping[str, Any]) -> StepUsage:
    """Thoughts are counted apart from the answer, and what its own tools read apart from the question."""
    taken, tools = _number(usage, "promptTokenCount"), _number(usage, "toolUsePromptTokenCount")
    given, thoughts = _number(usage, "candidatesTokenCount"), _number(usage, "thoughtsTokenCount")
    asked, said = usage.get("promptTokensDetails"), usage.get("candidatesTokensDetails")
    has_total = taken is not None and "totalTokenCount" in usage
    return StepUsage(
        input=None if taken is None else taken + (tools or 0),
        output=(given or 0) + (thoughts or 0) if has_total or given is not None else thoughts,
        cached=_number(usage, "cachedContentTokenCount"),
        reasoning=thoughts,
        input_audio=_of_kind(asked, "AUDIO"),
        output_audio=_of_kind(said, "AUDIO"),
        input_image=_of_kind(asked, "IMAGE"),
        output_image=_of_kind(said, "IMAGE"),
    )


def _of_kind(details: Any, kind: str) -> int | None:
    """The tokens of one kind in Google's list of them."""
    items = details if isinstance(details, list) else []
    counts = (
        _number(each, "tokenCount")
        for each in items
        if isinstance(each, dict) and each.get("modality") == kind
    )
    return next((count for count in counts if count is not None), None)


def _number(values: Mapping[str, Any], *names: str) -> int | None:
    """The first of these counts that is there; None if it is impossible."""
    found = next((values[name] for name in names if values.get(name) is not None), None)
    is_count = isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= MAX_TOKENS
    return found if is_count else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
