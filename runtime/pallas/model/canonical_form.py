"""The canonical form of a request to a model, or of a call: two requests with the same form ask the same.

``FORM`` is its number, which digests begin with: digests of another form are not compared with those of this
one. What differs each time is named here by its place in a provider's document, and by nothing else. Ids that
pair things are replaced by ``#1``, ``#2`` in the order in which they are first used; what they pair counts.
Folders of a machine become the marks of ``host_places`` in the digest.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from .dated_template import DatedTemplate

FORM: Final = 3
"""Digests without a number are of the first form, which had no ids at all, of no place."""
_BEFORE: Final = "2"
"""The form before, which had the folders of a machine as they are: without one, the same text."""
CONVERSATIONS: Final = ("messages", "input", "contents")
"""What providers call the conversation."""
VOLATILE_FIELDS: Final = frozenset(
    {"metadata", "prompt_cache_key", "safety_identifier", "stream", "stream_options", "user"}
)
"""Fields of a request that say nothing of the question."""
_ID_FIELDS: Final = frozenset({"previous_response_id"})
"""Fields of a request of which only the presence counts."""
# By the name of the conversation: the paths of ids in one of its messages. ``*`` is each item of a list.
_IDS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    # OpenAI's chat completions, and Anthropic.
    "messages": (
        ("id",),
        ("tool_call_id",),
        ("tool_calls", "*", "id"),
        ("audio", "id"),
        ("content", "*", "id"),
        ("content", "*", "tool_use_id"),
    ),
    # OpenAI's responses.
    "input": (("id",), ("call_id",), ("approval_request_id",)),
    # Google.
    "contents": (("parts", "*", "functionCall", "id"), ("parts", "*", "functionResponse", "id")),
}
# Likewise the arguments of calls that are JSON texts: blanks and the order of keys do not count in them.
_ARGUMENTS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "messages": (("tool_calls", "*", "function", "arguments"), ("function_call", "arguments")),
    "input": (("arguments",),),
    "contents": (),
}
_INSTRUCTIONS: Final = ("instructions", "system", "systemInstruction")
_LEADING: Final = ("system", "developer")
_LONG_NUMBER: Final = re.compile(r"\d{16}")
_NO_INTEGER: Final = re.compile(r"\d\.0|\d[eE]")
_LAST_EXACT: Final = 2**53
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError, ValueError)

type Numbering = Callable[[str], str]
"""What stands for an id: ``#`` and its number."""


class IdNumbers:
    """Numbers ids in the order of their first use, from ``first`` on, unless ``known`` has them."""

    def __init__(self, first: int = 1, known: Callable[[str], int | None] = lambda _: None) -> None:
        self._first = first
        self._known = known
        self.new: list[str] = []

    def __call__(self, value: str) -> str:
        """Return what stands for an id."""
        number = self._known(value)
        if number is None:
            if value not in self.new:
                self.new.append(value)
            number = self._first + self.new.index(value)
        return f"#{number}"


def canonical_request(request: Any, templates: Sequence[DatedTemplate] = ()) -> Any:
    """The form of a request to a model, as a document of the same shape.

    In instructions that one of ``templates`` made, its dates are replaced by its placeholders.
    """
    if not isinstance(request, dict):
        return canonical_value(request)
    numbers = IdNumbers()
    return {
        name: _canonical_field(name, value, numbers, templates)
        for name, value in request.items()
        if name not in VOLATILE_FIELDS
    }


def canonical_value(value: Any) -> Any:
    """A value of which everything counts: a float that is an integer is one."""
    if isinstance(value, dict):
        return {name: canonical_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [canonical_value(each) for each in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < _LAST_EXACT:
        return int(value)
    return value


def message_text(body: str, conversation: str, numbers: Numbering) -> str:
    """The form of a message, a JSON text, as JSON text."""
    try:
        return _text(_canonical_message(_loaded(body), conversation, numbers), body)
    except _UNREADABLE:
        return body


def value_text(body: str) -> str:
    """The form of a JSON text of which everything counts, as JSON text."""
    try:
        return _text(_loaded(body), body)
    except _UNREADABLE:
        return body


def field_text(name: str, body: str) -> str:
    """The form of a field outside the conversation, a JSON text, as JSON text."""
    return '"#"' if name in _ID_FIELDS and body != "null" else value_text(body)


def numbered(digest: str) -> str:
    """A digest of something of this form, with the number of the form before it."""
    return f"{FORM}:{digest}"


def as_this_form(digest: str) -> str:
    """A digest as one of this form: equal ones mean equal requests. Empty for one that says nothing."""
    form, _, value = digest.partition(":")
    return numbered(value) if value and form in (str(FORM), _BEFORE) else ""


def _canonical_field(name: str, value: Any, numbers: Numbering, templates: Sequence[DatedTemplate]) -> Any:
    if name in CONVERSATIONS and isinstance(value, list):
        found = [_canonical_message(each, name, numbers) for each in value]
        return [_undated_message(each, templates) for each in found] if templates else found
    if name in _ID_FIELDS and value is not None:
        return "#"
    value = canonical_value(value)
    return _undated(value, templates) if templates and name in _INSTRUCTIONS else value


def _canonical_message(message: Any, conversation: str, numbers: Numbering) -> Any:
    found = canonical_value(message)
    for path in _ARGUMENTS.get(conversation, ()):
        _replace(found, path, _parsed)
    # In the order of the paths, not of the document: that is the same in all messages of a kind.
    for path in _IDS.get(conversation, ()):
        _replace(found, path, numbers)
    return found


def _replace(value: Any, path: tuple[str, ...], by: Callable[[str], Any]) -> None:
    """Replace the texts at that path of a document."""
    name, *rest = path
    if name == "*":
        for each in value if isinstance(value, list) else ():
            _replace(each, tuple(rest), by)
    elif isinstance(value, dict) and name in value:
        if rest:
            _replace(value[name], tuple(rest), by)
        elif isinstance(value[name], str):
            value[name] = by(value[name])


def _parsed(text: str) -> Any:
    try:
        found = _loaded(text)
    except _UNREADABLE:
        return text
    return canonical_value(found) if isinstance(found, dict) else text


def _undated_message(message: Any, templates: Sequence[DatedTemplate]) -> Any:
    if not isinstance(message, dict) or message.get("role") not in _LEADING or "content" not in message:
        return message
    return message | {"content": _undated(message["content"], templates)}


def _undated(value: Any, templates: Sequence[DatedTemplate]) -> Any:
    """Instructions, which are a text, or parts with texts, without the dates of their template."""
    if isinstance(value, str):
        texts = (found for each in templates if (found := each.undated(value)) is not None)
        return next(texts, value)
    if isinstance(value, list):
        return [_undated(each, templates) for each in value]
    if isinstance(value, dict):
        return {
            name: _undated(each, templates) if name in ("text", "parts") else each
            for name, each in value.items()
        }
    return value


def _loaded(body: str) -> Any:
    # msgspec makes a float of an integer of more than 64 bits, which two of them may have in common.
    return json.loads(body) if _LONG_NUMBER.search(body) else msgspec.json.decode(body)


def _text(value: Any, body: str) -> str:
    if _NO_INTEGER.search(body):
        value = canonical_value(value)
    if _LONG_NUMBER.search(body):
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return msgspec.json.encode(value, order="sorted").decode()
