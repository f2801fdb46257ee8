"""What a tool was last called with, for as long as the workbench runs: nothing of it is written anywhere."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_TOOLS: Final = 100

ToolKey = tuple[str, str, str]
"""Agent, server (empty for the agent itself) and tool."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The arguments, and the name of the environment variable whose token went along; never a token."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    variable: str = ""


class Memory:
    """The last calls of the last 100 tools."""

    def __init__(self) -> None:
        self._calls: OrderedDict[ToolKey, Remembered] = OrderedDict()

    def keep(self, key: ToolKey, call: Remembered) -> None:
        """Remember a call; the tool that was called longest ago is forgotten for it."""
        self._calls[key] = call
        self._calls.move_to_end(key)
        while len(self._calls) > MAX_TOOLS:
            self._calls.popitem(last=False)

    def last(self, key: ToolKey) -> Remembered | None:
        """The last call of a tool, None when there was none."""
        return self._calls.get(key)
