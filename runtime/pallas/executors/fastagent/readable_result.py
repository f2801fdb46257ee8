"""The result of a tool as a model can read it: what it cannot get is named in words.

fast-agent and the converters of its providers drop content without a word: pictures that a model does not
take, links, files of other types, the text beside structured content. A failure without a text reads as a
success.
"""

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from pallas.downstreams.media_types import is_text_type, picture_of, plain_media_type, size_of_base64
from pallas.safe_text import one_line

type Takes = Callable[[str, Literal["embedded", "link"]], bool]
"""Whether the model takes content of that media type, in the result or behind a link."""

FAILED: Final = "The call failed, and the tool did not say why."
_DESCRIPTION: Final = 500


def takes_of(agent: Any) -> Takes:
    """Return what the agent's model takes, as fast-agent decides it."""
    info = getattr(getattr(agent, "llm", None), "model_info", None)
    if info is None:
        return lambda media_type, source: False
    return lambda media_type, source: bool(info.supports_mime(media_type, resource_source=source))


def readable(result: CallToolResult, takes: Takes) -> CallToolResult:
    """Return the result with texts in place of all that the model would not get; itself if it gets all."""
    content = list(result.content or [])
    made = [_readable_block(block, takes) for block in content]
    structured = getattr(result, "structured_content", None)
    texts = [block.text for block in made if isinstance(block, TextContent) and block.text.strip()]
    if structured is not None and texts and not _says_the_same(texts, structured):
        # the model would get the structured content alone
        made.append(_text(json.dumps(structured, ensure_ascii=False)))
        structured = None
    elif structured is None and result.is_error and not texts:
        made = [_text(FAILED), *(block for block in made if not isinstance(block, TextContent))]
    if made == content and structured is result.structured_content:
        return result
    return result.model_copy(update={"content": made, "structured_content": structured})


def _readable_block(block: Any, takes: Takes) -> Any:
    match block:
        case TextContent():
            return block
        case ImageContent():
            return _readable_picture(block, takes)
        case AudioContent():
            is_taken = takes(block.mime_type, "embedded")
            return block if is_taken else _left_out("a sound", block.mime_type, block.data)
        case EmbeddedResource(resource=TextResourceContents() as found):
            return _text(f"{_address(found)}:\n{found.text}")
        case EmbeddedResource(resource=BlobResourceContents() as found):
            return _readable_file(block, found, takes)
        case ResourceLink():
            is_taken = bool(block.mime_type) and takes(block.mime_type or "", "link")
            return block if is_taken else _text(_link(block))
    return _text(f"[Left out: content of the type {one_line(str(getattr(block, 'type', '')), 100)!r}]")


def _readable_picture(block: ImageContent, takes: Takes) -> Any:
    """A provider refuses the whole request for a picture of another type than is said."""
    media_type, data = picture_of(block.mime_type, block.data)
    if not _is_base64(data):
        return _text(f"[Left out: a picture, {one_line(media_type, 100)}, whose data is not base64]")
    if not media_type.startswith("image/") or not takes(media_type, "embedded"):
        return _left_out("a picture", media_type, data)
    if (media_type, data) == (block.mime_type, block.data):
        return block
    return block.model_copy(update={"mime_type": media_type, "data": data})


def _is_base64(data: str) -> bool:
    try:
        return bool(b64decode(data, validate=True))
    except ValueError:
        return False


def _readable_file(block: EmbeddedResource, found: BlobResourceContents, takes: Takes) -> Any:
    media_type = plain_media_type(found.mime_type)
    if is_text_type(media_type):
        try:
            return _text(f"{_address(found)}:\n{b64decode(found.blob, validate=True).decode()}")
        except ValueError:  # no base64, or no text in UTF-8
            return _left_out(one_line(str(found.uri), 500), media_type, found.blob)
    return (
        block
        if takes(media_type, "embedded")
        else _left_out(one_line(str(found.uri), 500), media_type, found.blob)
    )


def _says_the_same(texts: Sequence[str], structured: Any) -> bool:
    """Whether the only text is the structured content, as JSON or as the value of its key ``result``."""
    if len(texts) != 1:
        return False
    wrapped = structured.get("result") if isinstance(structured, dict) and len(structured) == 1 else None
    if texts[0] == wrapped:
        return True
    try:
        said = json.loads(texts[0])
    except (ValueError, RecursionError):
        return False
    return bool(said == structured or (wrapped is not None and said == wrapped))


def _address(found: TextResourceContents | BlobResourceContents) -> str:
    kind = f" ({one_line(found.mime_type, 100)})" if found.mime_type else ""
    return f"{one_line(str(found.uri), 500)}{kind}"


def _link(link: ResourceLink) -> str:
    facts = [one_line(link.mime_type, 100)] if link.mime_type else []
    if link.size is not None:
        facts.append(f"{link.size:,} bytes")
    what = f" ({', '.join(facts)})" if facts else ""
    name = one_line(link.title or link.name, 200)
    said = f": {one_line(link.description, _DESCRIPTION)}" if link.description else ""
    return f"[A link to {name}, {one_line(str(link.uri), 500)}{what}{said}]"


def _left_out(what: str, media_type: str, data: str) -> TextContent:
    size = size_of_base64(data)
    return _text(
        f"[Left out: {what}, {one_line(media_type, 100)}, {size:,} bytes; this model does not take it]"
    )


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)
