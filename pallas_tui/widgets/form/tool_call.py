"""One call of a tool by hand: with a deadline, an owner and an outcome in words."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pallas.model import Fault, FleetPort, ToolOutcome
from pallas.safe_text import one_line

DEADLINE: Final = 310.0
"""Seconds; a fleet gives a call up after 300 by itself."""
_NAME: Final = 200


@dataclass(frozen=True, slots=True)
class Subject:
    """The tool to call: one of the agent itself if ``server`` is empty, else one of that downstream."""

    agent: str
    server: str
    tool: str

    def title(self, width: int) -> str:
        """For a title on a screen of so many cells: the agent only where there is room."""
        name = f"{self.server}/{self.tool}" if self.server else self.tool
        whole = f"{self.agent}: {name}"
        return whole if len(whole) < width - 45 else name


class NotCalled(Exception):
    """Why nothing was called, in one line."""


def token_of(variable: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The token in an environment variable, None without a variable. Raises NotCalled when it holds none."""
    if not variable:
        return None
    token = (os.environ if environ is None else environ).get(variable, "").strip()
    if not token:
        raise NotCalled(
            f"{one_line(variable, 60)} is not set: set it before the workbench starts, or remove it with b"
        )
    return token


def is_variable(text: str) -> bool:
    """Whether a text can be the name of an environment variable: a pasted token hardly can."""
    return len(text) <= _NAME and text.isascii() and text.isidentifier()


async def call(
    fleet: FleetPort, subject: Subject, arguments: Mapping[str, Any], token: str | None
) -> ToolOutcome:
    """Call it. A call that fails has an outcome that says why; raises nothing but cancellation."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(DEADLINE):
            return await fleet.call_tool(subject.agent, subject.server, subject.tool, arguments, token)
    except Fault as fault:
        why = fault.message
    except TimeoutError:
        why = f"no answer within {DEADLINE:.0f} s"
    except Exception as error:  # a fleet elsewhere may fail in ways of its own; its words could hold anything
        why = f"the call failed: {type(error).__name__}"
    return ToolOutcome(ok=False, content="", seconds=loop.time() - began, texts=(why,))
