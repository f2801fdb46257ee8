"""Read and check a handler's question to a model (HC-30, HC-36)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pallas.model import Fault, FaultType, Message, Params, ToolAnswer, ToolCall
from pallas.safe_text import one_line

MAX_MESSAGES: Final = 2_000
MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters of all messages together."""
PER_TOKEN: Final = 4
"""Estimated characters per token."""
LEAST: Final = 100
"""The least estimate for a request, in tokens."""

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
# Parameters of a conversation; here the handler's own list of messages is the conversation.
_REFUSED: Final = ("messages", "model", "systemOverride", "systemAppend", "tools_allowlist", "tool_choice")


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """``messages`` end with a user's or with tool results; ``system`` comes before them."""

    messages: tuple[Message, ...]
    system: str = field(default="", repr=False)
    size: int = 0

    @property
    def tokens(self) -> int:
        """The estimated number of tokens."""
        return estimated(self.size)


def estimated(characters: int) -> int:
    """Estimate the tokens in so many characters."""
    return max(LEAST, characters // PER_TOKEN)


def read_question(messages: Sequence[Mapping[str, Any]], prompt: str = "") -> CompletionRequest:
    """Return the messages ready to send, with ``prompt`` before all others as ``system``.

    Content is text, or a list of parts of type ``text``; null only together with ``tool_calls``. Raises Fault
    (PROTOCOL) that says which message is wrong, and never quotes the prompt.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise _wrong("messages", 'must be a list of {"role": ..., "content": ...}')
    if not messages:
        raise _wrong("messages", "is empty; add what the user says")
    if len(messages) > MAX_MESSAGES:
        raise _wrong("messages", f"has {len(messages)} entries; at most {MAX_MESSAGES} are sent")
    system = [prompt] if prompt else []
    conversation: list[Message] = []
    size = 0
    for number, given in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(given, Mapping):
            raise _wrong(place, 'must be an object with "role" and "content"')
        role, text = given.get("role"), _text(place, given)
        size += len(text)
        if size > MAX_TEXT:
            raise _wrong("messages", f"have more than {MAX_TEXT // 2**20} MiB of text; send fewer")
        if role in ("system", "developer"):
            system.append(text)
        elif role == "user":
            conversation.append(Message("user", text))
        elif role == "assistant":
            calls = _calls(place, given)
            size += sum(len(str(call.arguments)) for call in calls)
            conversation.append(Message("assistant", text, calls=calls))
        elif role == "tool":
            _answer(conversation, place, given, text)
        else:
            raise _wrong(f"{place}.role", f"{one_line(repr(role), 40)} is none of {', '.join(_ROLES)}")
    if not conversation or conversation[-1].role == "assistant":
        raise _wrong("messages", "must end with what a user says, or with what a tool answered")
    system_text = "\n\n".join(part for part in system if part.strip())
    return CompletionRequest(tuple(conversation), system_text, size + len(prompt))


def read_params(given: Mapping[str, Any]) -> Params:
    """Read the parameters of one question, in snake_case or camelCase. Raises Fault (PROTOCOL)."""
    params = Params.read({name: value for name, value in given.items() if value is not None}, strict=True)
    for key in _REFUSED:
        if key in params.values:
            raise _wrong(key, "is not a parameter of complete(); write it in messages, or leave it out")
    return params


def _text(place: str, given: Mapping[str, Any]) -> str:
    content = given.get("content")
    if isinstance(content, str):
        return _sendable(f"{place}.content", content)
    if content is None:
        if given.get("tool_calls") and given.get("role") == "assistant":
            return ""
        raise _wrong(f"{place}.content", "is null; give text (only an assistant's tool_calls need none)")
    if isinstance(content, Sequence) and not isinstance(content, bytes):
        plain = [each for each in content if isinstance(each, Mapping) and each.get("type", "text") == "text"]
        parts = [text for each in plain if isinstance(text := each.get("text"), str)]
        if len(parts) == len(content):
            return _sendable(f"{place}.content", "\n".join(parts))
    raise _wrong(f"{place}.content", 'must be text, or a list of {"type": "text", "text": ...}')


def _sendable(place: str, text: str) -> str:
    """Return the text if it can be encoded as UTF-8: otherwise a backend would seem to fail."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _wrong(place, f"has half of a character, {text[error.start]!r}; leave it out") from None
    return text


def _calls(place: str, given: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Read ``tool_calls`` in OpenAI's form; arguments are JSON text or an object."""
    calls = given.get("tool_calls") or ()
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise _wrong(f"{place}.tool_calls", "must be a list")
    found = []
    for index, call in enumerate(calls):
        where = f"{place}.tool_calls[{index}]"
        inner = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(name := inner.get("name"), str):
            raise _wrong(where, 'must have "id" and "function" with a name')
        found.append(ToolCall(str(call.get("id") or f"call_{index}"), name, _arguments(where, inner)))
    return tuple(found)


def _arguments(where: str, inner: Mapping[str, Any]) -> Mapping[str, Any]:
    arguments = inner.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise _wrong(f"{where}.arguments", "is not JSON") from None
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise _wrong(f"{where}.arguments", "must be an object")
    return arguments


def _answer(conversation: list[Message], place: str, given: Mapping[str, Any], text: str) -> None:
    """Append the tool result; results for one message's calls form one message."""
    call = given.get("tool_call_id")
    if not isinstance(call, str) or not call:
        raise _wrong(f"{place}.tool_call_id", "names no call")
    before = conversation[-1] if conversation else None
    known = {each.id for message in conversation for each in message.calls}
    if call not in known:
        raise _wrong(f"{place}.tool_call_id", "is of no call that an assistant made before")
    answer = ToolAnswer(call, text)
    if before is not None and before.role == "tool":
        conversation[-1] = Message("tool", f"{before.text}\n{text}", answers=(*before.answers, answer))
    else:
        conversation.append(Message("tool", text, answers=(answer,)))


def _wrong(key: str, problem: str) -> Fault:
    return Fault(FaultType.PROTOCOL, f"complete(): {key}: {problem}", data={"key": key})
