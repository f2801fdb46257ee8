"""The API of typed handlers: what a handler is given and what it returns.

``async def handler(payload, metadata) -> HandlerResponse | None``: the payload is a validated dataclass, and
the fleet, not the handler, decides who may send to whom. ``docs/typed-handlers.md`` is the introduction.
"""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

from pallas.invocation import current

__all__ = [
    "Boot",
    "ConsoleInput",
    "ConsolePrompt",
    "Document",
    "HandlerMetadata",
    "HandlerResponse",
    "SystemError",
    "Text",
    "TodoClosed",
    "TodoComplete",
    "TodoRegistered",
    "TodoUntil",
    "scratch",
]


@dataclass
class HandlerResponse:
    """A message to send: to the agent that ``to`` names, or to the caller if ``to`` is None."""

    payload: Any  # an instance of a dataclass
    to: str | None = None  # the name of an agent

    @classmethod
    def respond(cls, payload: Any) -> "HandlerResponse":
        """Answer the caller. This ends the conversation and all conversations begun in it."""
        return cls(payload, None)


@dataclass
class HandlerMetadata:
    """What a handler may know of a message. Changing it has no effect."""

    thread_id: str  # the opaque UUID of the conversation
    from_id: str  # the sender: the previous hop
    own_name: str | None = None  # set only for an agent (``agent: true``)
    is_self_call: bool = False  # whether the agent sent the message itself
    usage_instructions: str = ""  # the agent's peers, their schemas and how to answer, for a model
    todo_nudge: str = ""  # the todos whose message has arrived; empty without any


@dataclass
class Text:
    """Text to and from an agent without typed messages: a model, a worker, an agent of another fleet."""

    text: str


@dataclass
class Document:
    """A response whose class the receiver does not know."""

    tag: str  # the name of the class
    xml: str  # the element


@dataclass
class SystemError:
    """Why a message was not delivered or not answered. It reveals no other agents."""

    ELEMENTS: ClassVar = {"retry_allowed": "retry-allowed"}
    code: str  # ``routing``, ``validation``, ``timeout``, or the type of a Fault in lower case
    message: str
    retry_allowed: bool = True


@dataclass
class Boot:
    """The first message of a fleet, sent to each handler that accepts it."""

    project: str  # the fleet's name
    agents: int = 0


@dataclass
class ConsolePrompt:
    """To the console: show ``output``, which comes from ``source``, then read a line."""

    output: str = ""
    source: str = ""


@dataclass
class ConsoleInput:
    """A line that a person typed."""

    text: str
    source: str = "console"


@dataclass
class TodoUntil:
    """To ``system.todo``: remind me until a message of class ``wait_for`` arrives from ``from_listener``."""

    wait_for: str
    from_listener: str = ""
    description: str = ""


@dataclass
class TodoRegistered:
    """The response to ``TodoUntil``: the todo's id, and what it waits for."""

    id: str
    wait_for: str = ""
    description: str = ""


@dataclass
class TodoComplete:
    """To ``system.todo``: close the todo."""

    id: str


@dataclass
class TodoClosed:
    """The response to ``TodoComplete``."""

    id: str
    was_raised: bool = False  # whether its message had arrived


def scratch() -> MutableMapping[str, Any]:
    """Return a mapping that keeps values between the messages of the current conversation.

    A message that the handler sends to itself finds the same mapping. The fleet drops it when the
    conversation ends with ``respond`` (HC-18). It holds at most 1,000 entries and 16 MiB. Raises RuntimeError
    where no message is being handled.
    """
    invocation = current()
    if invocation is None:
        raise RuntimeError("scratch() is for handlers of a fleet: there is no message being handled here")
    return invocation.scratch
