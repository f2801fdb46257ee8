"""Makes a stream of server-sent events of a recorded answer, in the form of the provider that gave it.

It is the reverse of ``executors.model_client.answer_document``: put together again, the events of an answer
that was streamed are the same document. Forms are those of OpenAI (chat completions, responses), Anthropic
and Google.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

PIECE: Final = 80
"""Characters of a text that are sent at once."""
_CHAT_END: Final = ("usage", "error")
_RESPONSE_ENDS: Final = ("completed", "incomplete", "failed")


def events_of(document: Any) -> tuple[str, ...]:
    """The events of an answer, each as it is sent; of no known form: the document, as one event."""
    if isinstance(document, list):
        return tuple(_event(each) for each in document)
    if not isinstance(document, dict):
        return (_data(document),)
    if "choices" in document:
        return (*map(_data, _chat(document)), "data: [DONE]\n\n")
    if "candidates" in document:
        return tuple(map(_data, _google(document)))
    if document.get("type") == "message":
        return tuple(map(_event, _anthropic(document)))
    if document.get("object") == "response" or "output" in document:
        return tuple(map(_event, _numbered(_response(document))))
    return (_event(document),)


def _data(document: Any) -> str:
    # In ASCII: some libraries end lines at other characters than newlines.
    return f"data: {json.dumps(document)}\n\n"


def _event(document: Mapping[str, Any]) -> str:
    kind = document.get("type")
    return f"event: {kind}\n{_data(document)}" if isinstance(kind, str) else _data(document)


def _pieces(text: Any) -> Iterator[str]:
    """The text in pieces; nothing of what is no text."""
    if isinstance(text, str):
        yield from (text[at : at + PIECE] for at in range(0, len(text), PIECE))


def _chat(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    head = {name: each for name, each in document.items() if name not in ("choices", *_CHAT_END)}
    head["object"] = "chat.completion.chunk"
    for choice in _dicts(document["choices"]):
        index, message = choice.get("index", 0), _dict(choice.get("message"))
        for delta in _chat_deltas(message):
            yield {**head, "choices": [{"index": index, "delta": delta, "finish_reason": None}]}
        if choice.get("finish_reason") is not None:
            yield {
                **head,
                "choices": [{"index": index, "delta": {}, "finish_reason": choice["finish_reason"]}],
            }
    if end := {name: document[name] for name in _CHAT_END if name in document}:
        yield {**head, "choices": [], **end}


def _chat_deltas(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    plain = {
        name: each for name, each in message.items() if name != "tool_calls" and not isinstance(each, str)
    }
    names = {name: message[name] for name in ("role", "id", "type") if name in message}
    yield plain | names
    for name, text in message.items():
        if isinstance(text, str) and name not in names:
            yield from ({name: piece} for piece in [*_pieces(text)] or [""])
    for index, call in enumerate(_dicts(message.get("tool_calls"))):
        yield {"tool_calls": [{"index": index, **call}]}


def _anthropic(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    ends = {name: document[name] for name in ("stop_reason", "stop_sequence") if name in document}
    usage = _dict(document.get("usage"))
    start = {**document, **dict.fromkeys(ends), "content": []}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(_dicts(document.get("content"))):
        deltas = list(_anthropic_deltas(block))
        cut: dict[str, Any] = {
            name: "" for delta in deltas for name in delta if name in ("text", "thinking", "signature")
        }
        cut |= {"input": {}} if any("partial_json" in delta for delta in deltas) else {}
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **cut}}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    counted = {"usage": usage} if usage else {}
    yield {"type": "message_delta", "delta": ends, **counted}
    yield {"type": "message_stop"}


def _anthropic_deltas(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for piece in _pieces(block.get("text")):
        yield {"type": "text_delta", "text": piece}
    for piece in _pieces(block.get("thinking")):
        yield {"type": "thinking_delta", "thinking": piece}
    if block.get("signature"):
        yield {"type": "signature_delta", "signature": block["signature"]}
    if isinstance(block.get("input"), dict) and block["input"]:
        yield {"type": "input_json_delta", "partial_json": json.dumps(block["input"], ensure_ascii=False)}


def _response(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**document, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(_dicts(document.get("output"))):
        where = {"item_id": item.get("id", ""), "output_index": index}
        kind = item.get("type")
        empty: dict[str, Any] = {"content": []} if kind == "message" else {}
        empty |= {"arguments": ""} if kind == "function_call" else {}
        added = {**item, **empty, **({"status": "in_progress"} if "status" in item else {})}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        if kind == "message":
            for place, part in enumerate(_dicts(item.get("content"))):
                yield from _response_part(part, {**where, "content_index": place})
        elif kind == "function_call":
            name, arguments = "response.function_call_arguments", item.get("arguments", "")
            yield {"type": f"{name}.delta", "delta": arguments, **where}
            yield {"type": f"{name}.done", "arguments": arguments, **where}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    status = document.get("status")
    yield {
        "type": f"response.{status if status in _RESPONSE_ENDS else _RESPONSE_ENDS[0]}",
        "response": document,
    }


def _response_part(part: Mapping[str, Any], where: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if part.get("type") != "output_text":
        yield {"type": "response.content_part.added", "part": part, **where}
    else:
        blank = {**part, "text": "", "annotations": []}
        yield {"type": "response.content_part.added", "part": blank, **where}
        for piece in _pieces(part.get("text")):
            yield {"type": "response.output_text.delta", "delta": piece, "logprobs": [], **where}
        yield {"type": "response.output_text.done", "text": part.get("text"), "logprobs": [], **where}
    yield {"type": "response.content_part.done", "part": part, **where}


def _numbered(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, event in enumerate(events):
        yield {"sequence_number": number, **event}


def _google(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Events with a part of one candidate each; the last one of each candidate says why it ended."""
    head = {name: each for name, each in document.items() if name not in ("candidates", "usageMetadata")}
    candidates = _dicts(document["candidates"])
    for candidate in candidates:
        content = _dict(candidate.get("content"))
        shown = {"index": candidate["index"]} if "index" in candidate else {}
        for part in _google_parts(content):
            yield {**head, "candidates": [{**shown, "content": {**content, "parts": [part]}}]}
    ends = [{**each, "content": {**_dict(each.get("content")), "parts": []}} for each in candidates]
    counted = {name: document[name] for name in ("usageMetadata",) if name in document}
    yield {**head, "candidates": ends, **counted}


def _google_parts(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for part in _dicts(content.get("parts")):
        pieces = list(_pieces(part.get("text")))
        if len(pieces) < 2:
            yield part
            continue
        marks = {name: each for name, each in part.items() if name == "thought"}
        yield from ({**marks, "text": piece} for piece in pieces[:-1])
        yield {**part, "text": pieces[-1]}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
