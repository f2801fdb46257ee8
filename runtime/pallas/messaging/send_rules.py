"""The rules for sending. Pure functions, without a fleet, a frame or a payload."""

from collections.abc import Set as AbstractSet
from enum import Enum, auto
from typing import Final

from pallas.config.kinds import TODO

CALLER: Final = "system.caller"
"""The sender of messages from outside the fleet: no agent can have that name."""
SYSTEM: Final = "system"
"""The sender of refusals and of the boot message."""

MAX_REFUSALS: Final = 8
"""Consecutive refusals after which a frame ends, so that a handler cannot send the same forever."""
MAX_DEPTH: Final = 32
"""Frames below each other, including those of parent runs."""


class Recipient(Enum):
    """The kind of target of a message."""

    CALL = auto()
    """A new frame of the target, below the sender's."""
    SELF = auto()
    """The sender again, in the same frame."""
    RESPOND = auto()
    """The caller; the sender's frame ends."""
    TODO = auto()
    """The keeper of watchers."""
    REFUSED = auto()
    """None: the sender receives a refusal."""


def recipient_of(sender: str, agent: bool, peers: AbstractSet[str], caller: str, to: str | None) -> Recipient:
    """Return the route of a message from ``sender``, in a frame that ``caller`` opened.

    ``agent`` is whether the sender is declared with ``agent: true``.

    Fails closed: without ``peers`` only the sender and its caller are allowed. The caller's name is an answer
    to it, except for an agent that has it among its peers.
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
