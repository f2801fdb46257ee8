"""Converts between our messages and fast-agent's."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Self

from fast_agent.constants import FAST_AGENT_TIMING, FAST_AGENT_USAGE
from fast_agent.types import PromptMessageExtended
from fast_agent.types.llm_stop_reason import LlmStopReason
from mcp_types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    ImageContent,
    TextContent,
)
from pydantic import BaseModel, ValidationError

from pallas.model import Image, Message, ToolAnswer, ToolCall
from pallas.model.packed import Packed
from pallas.safe_text import encodable

_MANY: Final = 200
_MEASURED: Final = frozenset({FAST_AGENT_TIMING, FAST_AGENT_USAGE})
"""Channels with what fast-agent measured for its own screen; an answer needs them no more."""


class FrozenMessage(PromptMessageExtended):
    """A finished message of a conversation. It never changes, so a copy of it is itself.

    fast-agent copies the whole history deeply at every model call; with these, turn 300 costs as much as
    turn 1.
    """

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        if not update:
            return self
        return super().model_copy(update=update, deep=deep)


def native_copy(message: PromptMessageExtended) -> FrozenMessage:
    """Return the message in its frozen form, sharing its content.

    Thousands are in memory: they share the set of their fields, and an answer is without what was measured.
    """
    if isinstance(message, FrozenMessage):
        return message
    values = dict(vars(message))
    values["content"] = [_lean(block) for block in message.content]
    if message.channels and not message.tool_calls:
        kept = {name: blocks for name, blocks in message.channels.items() if name not in _MEASURED}
        values["channels"] = kept or None
    return _made(FrozenMessage, values, _FIELDS)


def _lean(block: ContentBlock) -> ContentBlock:
    if type(block) is TextContent and block.model_fields_set == _PLAIN and not block.__pydantic_extra__:
        return _made(TextContent, dict(vars(block)), _PLAIN)
    return block


def _made[M: BaseModel](kind: type[M], values: dict[str, Any], fields: set[str]) -> M:
    """Return a model with these valid values and the set of fields, which it shares with others."""
    made = kind.__new__(kind)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", fields)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


_set: Final = object.__setattr__
# Shared by all messages, which have every field, so that setting one adds nothing.
_FIELDS: Final = set(FrozenMessage.model_fields)
_PLAIN: Final = {"type", "text"}


def text_of(message: PromptMessageExtended) -> str:
    """Return all text blocks of the message itself, without tool results."""
    return _text(message.content)


def user_message(text: str, images: Iterable[Image] = ()) -> PromptMessageExtended:
    """Return one user message: its text, then its images (PR-17)."""
    content: list[ContentBlock] = [TextContent(type="text", text=text)]
    content += [ImageContent(type="image", data=image.data, mime_type=image.mime_type) for image in images]
    return PromptMessageExtended(role="user", content=content)


def to_message(native: PromptMessageExtended) -> Message:
    """Convert a fast-agent message to an entry of a thread that keeps its native form."""
    message = native_copy(native)
    if message.tool_results:
        blocks = [block for result in message.tool_results.values() for block in result.content]
        answers = tuple(
            ToolAnswer(call_id, _text(result.content), not result.is_error)
            for call_id, result in message.tool_results.items()
        )
        return Message("tool", _text(blocks), _images(blocks), message, answers=answers)
    calls = tuple(
        ToolCall(call_id, call.params.name, call.params.arguments or {})
        for call_id, call in (message.tool_calls or {}).items()
    )
    return Message(message.role, _text(message.content), _images(message.content), message, calls)


def _text(blocks: Iterable[ContentBlock]) -> str:
    text = "\n".join(block.text for block in blocks if isinstance(block, TextContent) and block.text)
    return str(encodable(text))  # half of a surrogate pair is not readable


def _images(blocks: Iterable[ContentBlock]) -> tuple[Image, ...]:
    return tuple(Image(block.data, block.mime_type) for block in blocks if isinstance(block, ImageContent))


def natives(history: Iterable[Message]) -> list[PromptMessageExtended]:
    """Convert entries of a thread to fast-agent's messages; entries without a native form are built from
    their text."""
    # Runs over the whole thread once a run, so the usual case is a single check.
    return [each.native if type(each.native) is FrozenMessage else _native(each) for each in history]


def are_many_new(history: Sequence[Message]) -> bool:
    """Return whether so many entries have to be built that it would block other runs."""
    return sum(type(each.native) is not FrozenMessage for each in history) > _MANY


def revived(message: Message) -> Message:
    """Return the entry with its native form restored if that came as JSON."""
    return replace(message, native=_native(message)) if isinstance(message.native, Packed) else message


def _native(message: Message) -> FrozenMessage:
    if isinstance(message.native, Packed):
        try:
            return FrozenMessage.model_validate_json(message.native.json)
        except ValidationError:  # written by another release: use its text
            pass
    if message.role == "assistant":
        content: list[ContentBlock] = [TextContent(type="text", text=message.text)]
        return native_copy(
            PromptMessageExtended(
                role="assistant",
                content=[] if message.calls and not message.text else content,
                tool_calls={call.id: _call(call) for call in message.calls} or None,
                stop_reason=LlmStopReason.TOOL_USE if message.calls else None,
            )
        )
    if message.answers:
        # Of several results it is not known which had the pictures: likely one without text.
        shown = next((each for each in message.answers if not each.text), message.answers[-1])
        results = {
            each.call_id: _answer(each, message.images if each is shown else ()) for each in message.answers
        }
        return native_copy(PromptMessageExtended(role="user", content=[], tool_results=results))
    return native_copy(user_message(message.text, message.images))


def _call(call: ToolCall) -> CallToolRequest:
    params = CallToolRequestParams(name=call.name, arguments=dict(call.arguments))
    return CallToolRequest(method="tools/call", params=params)


def _answer(answer: ToolAnswer, images: Iterable[Image]) -> CallToolResult:
    content: list[ContentBlock] = [
        ImageContent(type="image", data=each.data, mime_type=each.mime_type) for each in images
    ]
    if answer.text or not content:
        content.insert(0, TextContent(type="text", text=answer.text))
    return CallToolResult(content=content, is_error=not answer.ok)
