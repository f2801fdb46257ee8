"""Converts between our messages and fast-agent's."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Self

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
from pydantic import ValidationError

from pallas.model import Image, Message, ToolAnswer, ToolCall
from pallas.model.packed import Packed
from pallas.safe_text import encodable

_MANY: Final = 200


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
    """Return the message in its frozen form, sharing its content."""
    if isinstance(message, FrozenMessage):
        return message
    return FrozenMessage.model_construct(
        **{name: getattr(message, name) for name in type(message).model_fields}
    )


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
        results = {answer.call_id: _answer(answer) for answer in message.answers}
        return native_copy(PromptMessageExtended(role="user", content=[], tool_results=results))
    return native_copy(user_message(message.text, message.images))


def _call(call: ToolCall) -> CallToolRequest:
    params = CallToolRequestParams(name=call.name, arguments=dict(call.arguments))
    return CallToolRequest(method="tools/call", params=params)


def _answer(answer: ToolAnswer) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=not answer.ok)
