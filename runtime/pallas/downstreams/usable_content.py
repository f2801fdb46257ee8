"""The content of calls, prompts and resources: what does not fit is named in words, and no text is lost."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from pallas.safe_text import one_line

from .media_types import size_of_base64
from .result_fit import (
    Findings,
    Fitted,
    as_json,
    block_models,
    fitted,
    has_handshake,
    kind_of,
    resource_models,
)

_Object = dict[str, Any]

_MAX_REST: Final = 4_000
"""Characters of an unknown block's other fields that are shown as JSON."""
_DESCRIPTION: Final = 500
_FACTS: Final = frozenset(("type", "name", "title", "uri", "mimeType", "size", "description"))
_NOT_SHOWN: Final = frozenset(("annotations", "_meta", "icons", "data", "blob", "text"))
_NO_CONTENT: Final = frozenset(
    ("content", "structuredContent", "isError", "resultType", "_meta", "ttlMs", "cacheScope")
)
_OF_A_RESOURCE: Final = frozenset(("uri", "mimeType", "text", "blob", "_meta"))
_UNKNOWN_ADDRESS: Final = "unknown:"
_TEXTS_OF_BOOL: Final = ("true", "t", "yes", "y", "on", "1", "false", "f", "no", "n", "off", "0")


def usable_call(version: str, result: _Object, findings: Findings) -> _Object:
    """Return the result of ``tools/call`` with content that fits."""
    made = dict(result)
    content = result.get("content")
    if content is None:
        blocks = _other_content(result, findings)
        if result.get("error") and "isError" not in result:
            made["isError"] = True
    else:
        if not isinstance(content, list):
            findings.add("result", "", f"its content is {kind_of(content)}, not a list", "content")
            content = [content]
        blocks = [usable_block(each, str(place), version, findings) for place, each in enumerate(content, 1)]
    if "isError" in result:
        _repair_failure(made, blocks, findings)
    structured = result.get("structuredContent")
    if has_handshake(version) and structured is not None and not isinstance(structured, dict):
        why = f"its structuredContent is {kind_of(structured)}, not an object; it is given as text"
        findings.add("result", "", why, "structuredContent")
        del made["structuredContent"]
        if not any(_says(block, structured) for block in blocks):
            blocks.append(_text(as_json(structured)))
    made["content"] = blocks
    return made


def _other_content(result: Mapping[str, Any], findings: Findings) -> list[_Object]:
    """Return what a result without content says in other keys, as text."""
    rest = {key: value for key, value in result.items() if key not in _NO_CONTENT and value is not None}
    if rest:
        findings.add("result", "", "it has no content; its other keys are given as text", "content")
        only = next(iter(rest.values())) if len(rest) == 1 else None
        return [_text(only if isinstance(only, str) else as_json(rest))]
    if result.get("structuredContent") is None:
        findings.add("result", "", "it has no content", "content")
    return []


def _repair_failure(result: _Object, blocks: list[_Object], findings: Findings) -> None:
    """Make ``isError`` true or false. Anything that says something is a failure, and its text is kept."""
    said = result["isError"]
    if isinstance(said, bool) or said in (0, 1) or (isinstance(said, str) and said.lower() in _TEXTS_OF_BOOL):
        return
    result["isError"] = bool(said)
    if said is None:
        return
    findings.add("result", "", f"its isError is {kind_of(said)}, neither true nor false", "isError")
    if said and not isinstance(said, int | float):
        blocks.append(_text(said if isinstance(said, str) else as_json(said)))


def _says(block: Mapping[str, Any], value: Any) -> bool:
    """Whether the block is the value as text or as JSON."""
    text = block.get("text")
    if not isinstance(text, str):
        return False
    try:
        return text == value or bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def usable_prompt(version: str, result: _Object, findings: Findings) -> _Object:
    """Return the result of ``prompts/get`` with messages that fit, each of one block."""
    messages = _listed(result, "messages", findings)
    made = [
        message
        for place, each in enumerate(messages, 1)
        for message in _messages(each, str(place), version, findings)
    ]
    return {**result, "messages": made}


def usable_reading(version: str, result: _Object, findings: Findings) -> _Object:
    """Return the result of ``resources/read`` with contents that fit."""
    contents = _listed(result, "contents", findings)
    made = [_contents(each, str(place), version, findings) for place, each in enumerate(contents, 1)]
    return {**result, "contents": made}


def _listed(result: Mapping[str, Any], key: str, findings: Findings) -> list[Any]:
    """Return what a result has at a key, as a list."""
    value = result.get(key)
    if isinstance(value, list):
        return value
    findings.add(
        "result",
        "",
        f"its {key} are {kind_of(value)}, not a list" if value is not None else f"it has no {key}",
        key,
    )
    return [] if value is None else [value]


def _messages(message: Any, place: str, version: str, findings: Findings) -> list[_Object]:
    """Return a message of a prompt as messages that fit; one that has several blocks is several."""
    if not isinstance(message, dict) or "content" not in message:
        findings.add("content", place, "it is not a message, but is taken as the content of one", "role")
        message = {"role": "user", "content": message}
    role = message.get("role")
    if role not in ("user", "assistant"):
        findings.add("content", place, f"its role is {as_json(role)}; it is taken as the user's", "role")
        role = "user"
    content = message["content"]
    parts = content if isinstance(content, list) else [content]
    if isinstance(content, list):
        findings.add("content", place, "its content is a list; each block is a message", "content")
    return [{"role": role, "content": usable_block(part, place, version, findings)} for part in parts]


def _contents(contents: Any, place: str, version: str, findings: Findings) -> _Object:
    """Return contents of a resource that fit; a text in place of those that cannot be made to."""
    if not isinstance(contents, dict):
        findings.add("content", place, f"it is {kind_of(contents)}, not an object", "uri")
        return {"uri": _UNKNOWN_ADDRESS, "text": contents if isinstance(contents, str) else as_json(contents)}
    fit = _resource(contents, version)
    for part, why in fit.dropped.items():
        findings.add("content", place, why, part)
    if fit.value is not None:
        return fit.value
    uri, text = contents.get("uri"), _own_text(contents)
    findings.add("content", place, fit.why, "uri" if text else "")
    text = text or _left_out(f"the contents of a resource; {fit.why}", contents)
    return {"uri": uri if isinstance(uri, str) else _UNKNOWN_ADDRESS, "text": text}


def usable_block(block: Any, place: str, version: str, findings: Findings) -> _Object:
    """Return a block of content that fits; a text in place of one that cannot be made to."""
    if not isinstance(block, dict):
        findings.add("content", place, f"it is {kind_of(block)}, not an object", "type")
        return _text(block if isinstance(block, str) else as_json(block))
    kind = block.get("type")
    if not isinstance(kind, str):
        what = f"its type is {kind_of(kind)}" if "type" in block else "it has no type"
        findings.add("content", place, what, "type")
        kind = _likely_type(block)
    if kind not in block_models(version):
        what = f"content of the type {one_line(kind, 100)!r}" if kind else "content without a type"
        findings.add("content", place, f"{what} is not known")
        return _text(_left_out(what, block))
    fit = _fitted_block({**block, "type": kind}, version)
    for part, why in fit.dropped.items():
        findings.add("content", place, why, part)
    if fit.value is not None:
        return fit.value
    what = f"content of the type {kind!r}; {fit.why}"
    resource = block.get("resource") if kind == "resource" else None
    text, said = "", block
    if isinstance(resource, dict):
        text, said = (
            _own_text(resource),
            {key: each for key, each in block.items() if key != "resource"} | resource,
        )
    findings.add("content", place, what, "resource" if text else "")
    return _text(text or _left_out(what, said))


def _fitted_block(block: _Object, version: str) -> Fitted:
    """Return a block of a known type that fits, repaired where it is clear what was meant."""
    made, notes = dict(block), {}
    match block["type"]:
        case "text" if not isinstance(block.get("text"), str | None):
            notes["text"] = f"its text is {kind_of(block['text'])}"
            made["text"] = as_json(block["text"])
        case "resource_link" if not isinstance(block.get("name"), str):
            notes["name"] = "it has no name"
            labels = (block.get("title"), block.get("uri"))
            made["name"] = next((each for each in labels if isinstance(each, str)), "")
        case "resource":
            resource = block.get("resource")
            if resource is None:
                notes["resource"] = "its resource is not in a key of its own"
                resource = {key: value for key, value in block.items() if key in _OF_A_RESOURCE}
            if isinstance(resource, dict):
                inner = _resource(resource, version)
                if inner.value is None:
                    return inner
                made["resource"] = inner.value
                notes |= inner.dropped
    fit = fitted(block_models(version)[block["type"]], made)
    return replace(fit, dropped={**notes, **fit.dropped} if fit.value is not None else {})


def _likely_type(block: Mapping[str, Any]) -> str:
    """Return the type of a block that does not say it; empty if its keys do not tell."""
    media_type = str(block.get("mimeType", ""))
    if isinstance(block.get("resource"), dict):
        return "resource"
    if "text" in block:
        return "text"
    if "data" in block and media_type.startswith(("image/", "audio/")):
        return media_type[:5]
    return "resource_link" if "uri" in block else ""


def _resource(resource: _Object, version: str) -> Fitted:
    """Return the contents of a resource that fit, as text if there is one."""
    text, made, notes = resource.get("text"), resource, {}
    if text is not None and not isinstance(text, str):
        made = {**resource, "text": as_json(text)}
        notes["text"] = f"its text is {kind_of(text)}"
    key: Literal["text", "blob"] = "blob" if text is None and resource.get("blob") is not None else "text"
    fit = fitted(resource_models(version, key), made)
    return replace(fit, dropped={**notes, **fit.dropped} if fit.value is not None else {})


def _own_text(holder: Mapping[str, Any]) -> str:
    """Return the text that a block or resource has; empty if it has none."""
    text = holder.get("text")
    return text if isinstance(text, str) else "" if text is None else as_json(text)


def _left_out(what: str, block: Mapping[str, Any]) -> str:
    """Return a text for a block that is left out: what it is, and all that can be said of it."""
    facts = [
        one_line(value if isinstance(value, str) else as_json(value), _DESCRIPTION)
        for key in ("title", "name", "uri", "mimeType")
        if (value := block.get(key)) not in (None, "")
    ]
    if (size := _size(block)) is not None:
        facts.append(f"{size:,} bytes")
    if isinstance(described := block.get("description"), str) and described.strip():
        facts.append(one_line(described, _DESCRIPTION))
    lines = [f"[Left out: {'; '.join([what, *dict.fromkeys(facts)])}]"]
    if text := _own_text(block):
        lines.append(text)
    rest = {key: value for key, value in block.items() if key not in _FACTS and key not in _NOT_SHOWN}
    if rest:
        shown = as_json(rest)
        lines.append(
            shown
            if len(shown) <= _MAX_REST
            else f"[{len(shown):,} characters of {', '.join(rest)}]"[:_MAX_REST]
        )
    return "\n".join(lines)


def _size(block: Mapping[str, Any]) -> int | None:
    """Return the size of the data in bytes, as it is said or as its base64 has it."""
    size = block.get("size")
    if isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 1 << 63:
        return size
    data = next((each for key in ("data", "blob") if isinstance(each := block.get(key), str)), None)
    return None if data is None else size_of_base64(data)


def _text(text: str) -> _Object:
    return {"type": "text", "text": text}
