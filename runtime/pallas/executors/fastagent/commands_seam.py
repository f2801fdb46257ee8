"""Treats a caller's message as text even if it is a command to fast-agent.

A message that begins with ``***SAVE_HISTORY`` makes fast-agent write the conversation to the file that it
names, for any sender, and in a sub-agent for any text of a model. With this hook no text is that command.
``tests/contract/test_commands_seam.py`` fails when the wrapped code changes.
"""

from secrets import token_hex
from types import ModuleType
from typing import Final

from fast_agent.agents import llm_decorator
from fast_agent.llm import fastagent_llm

from pallas.model import Fault, FaultType

COMMAND: Final = "CONTROL_MESSAGE_SAVE_HISTORY"
PLACES: Final[tuple[ModuleType, ...]] = (fastagent_llm, llm_decorator)
# Random in each process, and never disclosed.
_NOBODYS: Final = f"***{token_hex(32)}"


def install() -> None:
    """Install the hook; further calls do nothing. Raises Fault (CONFIG) if the patched code has moved."""
    for place in PLACES:
        if not isinstance(vars(place).get(COMMAND), str):
            raise Fault(
                FaultType.CONFIG,
                f"{place.__name__}.{COMMAND} is not there, and callers might write files;"
                " install the release of fast-agent-mcp that this release of Pallas asks for",
            )
        setattr(place, COMMAND, _NOBODYS)
