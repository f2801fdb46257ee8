"""The context that all conversations of the chat share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...chat.mcp_talk import Connect
from ...chat.prompt_history import PromptHistory
from ...chat.saved_prompts import PromptBook
from ...chat.token_prices import TokenPrice
from ...text import Glyphs


@dataclass(frozen=True, slots=True)
class ChatDesk:
    """``clock`` returns the workbench's time in Unix seconds, as fine as its frames; ``stopwatch`` seconds.

    ``base`` is the folder of relative paths. ``price`` returns the price of a model, None when not known.
    ``waits_for`` returns what the run with that trace id waits for before it asks its model again.
    """

    connect: Connect
    history: PromptHistory
    glyphs: Glyphs
    base: Path
    clock: Callable[[], float]
    stopwatch: Callable[[], float]
    prompts: PromptBook = field(default_factory=PromptBook)
    price: Callable[[str], TokenPrice | None] = lambda model: None
    waits_for: Callable[[str], str] = lambda trace_id: ""


def setting(app: Any, name: str, default: Any) -> Any:
    """Return a setting of the user; ``default`` in an application that has none."""
    return getattr(getattr(app, "settings", None), name, default)
