"""Look up the result of a tool call of an answer, where it is kept."""

import json
from collections.abc import Sequence
from typing import Any, Final

from pallas.model import Exchange
from pallas.safe_text import sanitize

from .call_tree import Node, Tree

MAX_RESULT: Final = 200_000


def exchange_of(tree: Tree, node: Node, exchanges: Sequence[Exchange]) -> Exchange | None:
    """Return the request of a call of the agent itself; None for deeper calls, and when it is not kept.

    Neither side numbers the calls: the third ``docs/search`` of the tree is the third one over the wire.
    """
    if node.kind != "call" or node.parent is not tree.root:
        return None
    server, _, tool = node.label.partition("/")
    same = [each for each in tree.root.children if each.kind == "call" and each.label == node.label]
    calls = [
        each
        for each in exchanges
        if each.side == "downstream"
        and each.method == "tools/call"
        and each.peer == server
        and _called(each.request) == tool
    ]
    index = same.index(node)
    return calls[index] if index < len(calls) else None


def result_text(exchange: Exchange) -> str:
    """Return the texts of a result for a reader; the JSON where there are none."""
    try:
        message: Any = json.loads(exchange.response)
        result = message.get("result", message) if isinstance(message, dict) else message
        blocks = result.get("content") or []
        texts = [str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block]
        if texts:
            return sanitize("\n\n".join(texts), MAX_RESULT)
    except (ValueError, AttributeError, TypeError):
        pass
    return sanitize(exchange.response, MAX_RESULT)


def call_details(node: Node, exchange: Exchange | None, figures: str) -> str:
    """Return the details of a call: figures, arguments, result, and the text of an agent below it."""
    parts = [node.label + (f"  {figures}" if figures else "")]
    if node.error:
        parts += ["", "Failed with", node.error]
    if exchange is None and (node.arguments or node.result):
        parts += ["", "Asked", sanitize(node.arguments, MAX_RESULT), "", "Answered"]
        parts.append(sanitize(node.result, MAX_RESULT) or "no result is known")
    elif exchange is not None:
        parts += ["", "Asked", _pretty(exchange.request), "", "Answered", result_text(exchange)]
    if node.words:
        parts += ["", "Written in the meantime", sanitize(node.words, MAX_RESULT)]
    if exchange is None and not (node.words or node.arguments or node.result):
        parts += [
            "",
            "What was asked and answered is not kept for this call: the fleet keeps it for its newest runs.",
        ]
    return "\n".join(parts)


def _called(request: str) -> str:
    try:
        message = json.loads(request)
        params = message.get("params", message)
        return str(params.get("name", ""))
    except (ValueError, AttributeError):
        return ""


def _pretty(text: str) -> str:
    try:
        message = json.loads(text)
    except ValueError:
        return sanitize(text, MAX_RESULT)
    if isinstance(message, dict) and isinstance(message.get("params"), dict):
        message = message["params"].get("arguments", message["params"])
    return sanitize(json.dumps(message, indent=2, ensure_ascii=False), MAX_RESULT)
