"""Who may send to whom (SPEC 5.1). Pure: nothing here looks at a fleet, a frame or a payload."""

from collections.abc import Set as AbstractSet
from enum import Enum, auto
from typing import Final

CALLER: Final = "system.caller"
"""Whom a message from outside the fleet is from: no agent can have that name."""
SYSTEM: Final = "system"
"""Whom refusals and the boot message are from."""
TODO: Final = "system.todo"
"""Who keeps an agent's watchers (HC-35)."""

MAX_REFUSALS: Final = 8
"""Refusals in a row after which a frame ends: a handler that sends the same again for ever must end."""
MAX_DEPTH: Final = 32
"""Frames below each other, those of runs above included."""


class Recipient(Enum):
    """Where a message goes."""

    CALL = auto()
    """A new frame of the target, below the sender's."""
    SELF = auto()
    """The sender again, in the same frame."""
    RESPOND = auto()
    """Whoever called; the sender's frame ends."""
    TODO = auto()
    """The keeper of watchers."""
    REFUSED = auto()
    """Nobody: the sender is told so."""


def recipient_of(sender: str, agent: bool, peers: AbstractSet[str], caller: str, to: str | None) -> Recipient:
    """The way of a message that ``sender`` (``agent: true`` or not) sends in a frame that ``caller`` opened.

    Fails closed: without ``peers`` there are the sender and its caller, and nobody else. The name of the
    caller is an answer to it (SPEC C8), except for an agent that has it among its peers.
    """
    if to is None:
        return Recipient.RESPOND
    if to == sender:
        return Recipient.SELF
    if to == TODO:
        return Recipient.TODO if agent else Recipient.REFUSED
    if to == caller and not (agent and to in peers):
        return Recipient.RESPOND
    return Recipient.CALL if to in peers else Recipient.REFUSED
