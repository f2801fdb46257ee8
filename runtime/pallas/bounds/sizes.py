"""Limits on the size of messages and answers of all agents."""

import json
from typing import Final

from pallas.model import Fault, FaultType
from pallas.safe_text import has_lone_surrogate

# Characters of one message.
MAX_TEXT: Final = 2 * 1024 * 1024
# Bytes of a request as it travels; the protocol stack below us refuses what is larger.
MAX_BODY: Final = 4 * 1024 * 1024
# Bytes of JSON in one result. Official MCP clients drop a server-sent event above 1 MiB, which includes the
# JSON around the text.
MAX_RESULT: Final = 900_000


def check_text(text: str) -> None:
    """Refuse a message that is too long or cannot be encoded. Raises Fault (PROTOCOL)."""
    if len(text) > MAX_TEXT:
        raise Fault(
            FaultType.PROTOCOL,
            f"the message has {len(text)} characters; at most {MAX_TEXT}: send it in parts, or put it where "
            "a tool of the agent can read it",
        )
    if has_lone_surrogate(text):
        raise Fault(
            FaultType.PROTOCOL,
            "the message holds half of a surrogate pair (\\ud800 to \\udfff), which no encoding "
            "carries; send the whole character",
        )


def check_said(text: str, *, images: int) -> None:
    """Refuse an empty message. Raises Fault (PROTOCOL)."""
    if not images and not text.strip():
        raise Fault(
            FaultType.PROTOCOL,
            "message: is empty; write something, or attach an image",
            data={"key": "message"},
        )


def json_size(text: str) -> int:
    """The bytes of a text in JSON."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))


def fits(text: str) -> bool:
    """Whether a text has at most ``MAX_RESULT`` bytes in JSON."""
    # A character takes at most six bytes, so short texts need not be encoded.
    return len(text) * 6 + 2 <= MAX_RESULT or json_size(text) <= MAX_RESULT


def too_large(text: str, handle: str | None, *, is_stored: bool) -> Fault:
    """The Fault for an answer that clients could not receive. ``is_stored``: its conversation holds it."""
    size = json_size(text)
    where = f"conversation {handle}" if handle else "the conversation of this session"
    fix = f"it is kept in {where}: ask there for a part of it" if is_stored else "ask for a part of it"
    return Fault(
        FaultType.UPSTREAM,
        f"the answer has {size} bytes as JSON; at most {MAX_RESULT} reach every MCP client; {fix}, or for "
        "a shorter one",
        data={
            "size": size,
            "limit": MAX_RESULT,
            **({"conversation_id": handle} if handle and is_stored else {}),
        },
    )
