"""Estimates the tokens of messages, since only providers can count theirs."""

from typing import Final

from pallas.model import Message
from pallas.model.packed import packed_of

CHARACTERS_A_TOKEN: Final = 3.5
IMAGE_TOKENS: Final = 1_200
MESSAGE_TOKENS: Final = 8


def tokens_of(message: Message) -> int:
    """The estimated tokens of an entry of a thread."""
    characters = len(message.text) + sum(
        len(call.name) + len(repr(dict(call.arguments))) for call in message.calls
    )
    if not message.text and not message.calls and message.native is not None:
        characters = len(packed_of(message.native) or "")
    return int(characters / CHARACTERS_A_TOKEN) + MESSAGE_TOKENS + IMAGE_TOKENS * len(message.images)
