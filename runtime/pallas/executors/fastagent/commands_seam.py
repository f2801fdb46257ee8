"""What a caller writes is text, also where it is a command to fast-agent.

A message that begins with ``***SAVE_HISTORY`` has fast-agent write the conversation to the file that it
names, whoever sent it, and a sub-agent's whatever its model was talked into. Here no text is that command.
``tests/contract/test_commands_seam.py`` fails when a place moves.
"""

from secrets import token_hex
from types import ModuleType
from typing import Final

from fast_agent.agents import llm_decorator
from fast_agent.llm import fastagent_llm

from pallas.model import Fault, FaultType

COMMAND: Final = "CONTROL_MESSAGE_SAVE_HISTORY"
PLACES: Final[tuple[ModuleType, ...]] = (fastagent_llm, llm_decorator)
# Made anew in each process, and told to nobody.
_NOBODYS: Final = f"***{token_hex(32)}"


def install() -> None:
    """Once, however often this is called. Raises Fault (CONFIG) where a place has moved."""
    for place in PLACES:
        if not isinstance(vars(place).get(COMMAND), str):
            raise Fault(
                FaultType.CONFIG,
                f"{place.__name__}.{COMMAND} is not there, and callers might write files;"
                " install the release of fast-agent-mcp that this release of Pallas asks for",
            )
        setattr(place, COMMAND, _NOBODYS)
