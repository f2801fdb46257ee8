"""A conversation as the messages of a prompt, as much of it as a client can receive."""

from collections.abc import Sequence
from typing import Final

import mcp_types as mt
from fastmcp.prompts import Message as PromptMessage
from mcp_types import ImageContent

from pallas.bounds.sizes import MAX_RESULT, json_size
from pallas.model import Image, Message

# Around each message stand its role, its type and the JSON between.
_AROUND: Final = 120
# What is left of a text is worth showing from here on.
_WORTH: Final = 1_000


def prompt_messages(messages: Sequence[Message], limit: int = MAX_RESULT) -> list[PromptMessage]:
    """The conversation, newest kept: what is beyond ``limit`` bytes of JSON is left out at the old end.

    The message where it ends is shortened rather than dropped, a picture that has no room is named, and
    the first message says what is missing. What tools answered is not shown.
    """
    shown: list[PromptMessage] = []
    room = limit - 2_000  # for the notes and the envelope
    spoken = [message for message in messages if message.role != "tool"]
    for index in range(len(spoken) - 1, -1, -1):
        parts, room = _parts(spoken[index], room)
        shown[:0] = parts
        if room <= 0:
            if index > 0:
                shown.insert(0, _note(f"[{index} earlier messages are left out: {_TOO_LARGE}]", "user"))
            break
    return shown


_TOO_LARGE: Final = "the conversation is larger than an MCP client can receive; the agent remembers all of it"


def _parts(message: Message, room: int) -> tuple[list[PromptMessage], int]:
    """The message's blocks, and the room left after them, which is 0 when not all found place."""
    role: mt.Role = "user" if message.role == "user" else "assistant"
    parts: list[PromptMessage] = []
    if message.text:
        text, room = _fitting(message.text, room)
        parts.append(_note(text, role))
    for image in message.images:
        cost = len(image.data) + _AROUND
        if cost <= room:
            room -= cost
            parts.append(_picture(image, role))
        else:
            parts.append(
                _note(f"[a picture of {len(image.data)} characters is left out: {_TOO_LARGE}]", role)
            )
            room = max(0, room - 300)
    return parts, room


def _fitting(text: str, room: int) -> tuple[str, int]:
    cost = json_size(text) + _AROUND
    if cost <= room:
        return text, room - cost
    # Characters differ in size: as many as surely fit, going by this text's own average.
    keep = max(0, int(len(text) * (room - _AROUND) / cost)) if room > _WORTH else 0
    while keep and json_size(text[:keep]) > room:
        keep = keep * 9 // 10
    return f"{text[:keep]}[{len(text) - keep} characters more: {_TOO_LARGE}]", 0


def _note(text: str, role: mt.Role) -> PromptMessage:
    return PromptMessage(text, role=role)


def _picture(image: Image, role: mt.Role) -> PromptMessage:
    return PromptMessage(ImageContent(type="image", data=image.data, mime_type=image.mime_type), role=role)
