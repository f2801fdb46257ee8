"""Between our messages and fast-agent's."""

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
from pallas.model.safe_text import encodable

_MANY: Final = 200


class FrozenMessage(PromptMessageExtended):
    """A finished message of a conversation: nobody changes it, so a copy of it is itself.

    fast-agent copies the whole history deeply at every model call; with these, turn 300 costs what
    turn 1 costs.
    """

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        if not update:
            return self
        return super().model_copy(update=update, deep=deep)


def keep(message: PromptMessageExtended) -> FrozenMessage:
    """The message in its kept form, sharing its content."""
    if isinstance(message, FrozenMessage):
        return message
    return FrozenMessage.model_construct(
        **{name: getattr(message, name) for name in type(message).model_fields}
    )


def text_of(message: PromptMessageExtended) -> str:
    """All text blocks of the message itself, without tool results."""
    return _text(message.content)


def user_message(text: str, images: Iterable[Image] = ()) -> PromptMessageExtended:
    """One user message: its text, then its pictures (PR-17)."""
    content: list[ContentBlock] = [TextContent(type="text", text=text)]
    content += [ImageContent(type="image", data=image.data, mime_type=image.mime_type) for image in images]
    return PromptMessageExtended(role="user", content=content)


def to_message(native: PromptMessageExtended) -> Message:
    """A fast-agent message as an entry of a thread, with its own form kept beside it."""
    kept = keep(native)
    if kept.tool_results:
        blocks = [block for result in kept.tool_results.values() for block in result.content]
        answers = tuple(
            ToolAnswer(call_id, _text(result.content), not result.is_error)
            for call_id, result in kept.tool_results.items()
        )
        return Message("tool", _text(blocks), _images(blocks), kept, answers=answers)
    calls = tuple(
        ToolCall(call_id, call.params.name, call.params.arguments or {})
        for call_id, call in (kept.tool_calls or {}).items()
    )
    return Message(kept.role, _text(kept.content), _images(kept.content), kept, calls)


def _text(blocks: Iterable[ContentBlock]) -> str:
    said = "\n".join(block.text for block in blocks if isinstance(block, TextContent) and block.text)
    return str(encodable(said))  # nobody could read half of a surrogate pair


def _images(blocks: Iterable[ContentBlock]) -> tuple[Image, ...]:
    return tuple(Image(block.data, block.mime_type) for block in blocks if isinstance(block, ImageContent))


def natives(history: Iterable[Message]) -> list[PromptMessageExtended]:
    """Entries of a thread as fast-agent takes them; those made elsewhere are built from what they say."""
    # Once a run over the whole thread: the usual case stays a single look.
    return [each.native if type(each.native) is FrozenMessage else _native(each) for each in history]


def are_many_new(history: Sequence[Message]) -> bool:
    """Whether so many entries have to be built that others would notice."""
    return sum(type(each.native) is not FrozenMessage for each in history) > _MANY


def revived(message: Message) -> Message:
    """The entry with its own form in use again, where that came as JSON."""
    return replace(message, native=_native(message)) if isinstance(message.native, Packed) else message


def _native(message: Message) -> FrozenMessage:
    if isinstance(message.native, Packed):
        try:
            return FrozenMessage.model_validate_json(message.native.json)
        except ValidationError:  # made by another release: what was said is still there
            pass
    if message.role == "assistant":
        said: list[ContentBlock] = [TextContent(type="text", text=message.text)]
        return keep(
            PromptMessageExtended(
                role="assistant",
                content=[] if message.calls and not message.text else said,
                tool_calls={call.id: _call(call) for call in message.calls} or None,
                stop_reason=LlmStopReason.TOOL_USE if message.calls else None,
            )
        )
    if message.answers:
        results = {answer.call_id: _answer(answer) for answer in message.answers}
        return keep(PromptMessageExtended(role="user", content=[], tool_results=results))
    return keep(user_message(message.text, message.images))


def _call(call: ToolCall) -> CallToolRequest:
    params = CallToolRequestParams(name=call.name, arguments=dict(call.arguments))
    return CallToolRequest(method="tools/call", params=params)


def _answer(answer: ToolAnswer) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=answer.text)], is_error=not answer.ok)
