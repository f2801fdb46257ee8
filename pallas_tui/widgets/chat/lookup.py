"""What the fleet knows of an answer's calls, for copying and reading."""

import asyncio
from typing import Any, Final

from pallas.model import Exchange, Fault

from ...chat.call_outline import figures_of, story_of
from ...chat.call_results import exchange_of, result_text, story
from ...chat.call_tree import Node, Tree

_TIMEOUT: Final = 10.0


async def told(fleet: Any, run_id: str, tree: Tree, node: Node | None, now: float) -> tuple[str, str]:
    """A title and everything known of a call; of all of them without ``node``. ``run_id`` may be empty."""
    if node is None:
        return "Tool calls", story_of(tree, now)
    exchange = await _exchange(fleet, run_id, tree, node)
    return node.label, story(node, exchange, figures_of(node, now))


async def result(fleet: Any, run_id: str, tree: Tree, node: Node | None, now: float) -> str:
    """What a call gave back as far as that is known; else what progress told of it."""
    if node is None:
        return story_of(tree, now)
    exchange = await _exchange(fleet, run_id, tree, node)
    if exchange is not None:
        return result_text(exchange)
    return node.result or node.words or f"{node.label} {figures_of(node, now)}".strip()


async def _exchange(fleet: Any, run_id: str, tree: Tree, node: Node) -> Exchange | None:
    if fleet is None or not run_id:
        return None
    try:
        async with asyncio.timeout(_TIMEOUT):
            return exchange_of(tree, node, await fleet.exchanges(run_id))
    except (Fault, TimeoutError):
        return None
