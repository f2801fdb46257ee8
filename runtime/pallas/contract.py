"""Typed handlers: what one writes, and what it is told (SPEC 5). ``docs/typed-handlers.md`` begins with one.

``async def handler(payload, metadata) -> HandlerResponse | None``: the payload is a dataclass that was
checked before, and the fleet, not the handler, decides who speaks to whom.
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
    """A message to send: ``payload`` is an instance of a dataclass, ``to`` the name of an agent.

    ``to`` None is the caller: what ``respond`` makes.
    """

    payload: Any
    to: str | None = None

    @classmethod
    def respond(cls, payload: Any) -> "HandlerResponse":
        """Back to the caller: it ends this conversation, and all that was begun in it."""
        return cls(payload, None)


@dataclass
class HandlerMetadata:
    """What a handler may know of a message (SPEC 5.1); changing it changes nothing else.

    ``thread_id`` is the opaque UUID of the conversation; ``from_id`` who sent the message, the previous hop;
    ``own_name`` only where the agent is one (``agent: true``); ``is_self_call`` where it sent that itself;
    ``usage_instructions`` are the agent's peers, their schemas and how to answer, to be put before a model.
    ``todo_nudge`` names the todos of an agent for which what it waits for has come; empty without any.
    """

    thread_id: str
    from_id: str
    own_name: str | None = None
    is_self_call: bool = False
    usage_instructions: str = ""
    todo_nudge: str = ""


@dataclass
class Text:
    """Text to and from an agent that takes no typed messages: a model, a worker, another fleet's agent."""

    text: str


@dataclass
class Document:
    """An answer whose class the receiver does not know: ``tag`` is the class's name, ``xml`` the element."""

    tag: str
    xml: str


@dataclass
class SystemError:
    """Why a message was not delivered or not answered. It says nothing of who else there is.

    ``code`` is ``routing``, ``validation``, ``timeout``, or the type of a Fault in lower case.
    """

    ELEMENTS: ClassVar = {"retry_allowed": "retry-allowed"}
    code: str
    message: str
    retry_allowed: bool = True


@dataclass
class Boot:
    """The first message of a fleet, to each handler that takes it: ``project`` is the fleet's name."""

    project: str
    agents: int = 0


@dataclass
class ConsolePrompt:
    """Show ``output`` of ``source``, then ask for a line."""

    output: str = ""
    source: str = ""


@dataclass
class ConsoleInput:
    """A line that was typed."""

    text: str
    source: str = "console"


@dataclass
class TodoUntil:
    """To ``system.todo``: remind me until a ``wait_for`` (the name of a class) of ``from_listener`` came."""

    wait_for: str
    from_listener: str = ""
    description: str = ""


@dataclass
class TodoRegistered:
    """What ``TodoUntil`` is answered: the watcher's id, and what it waits for."""

    id: str
    wait_for: str = ""
    description: str = ""


@dataclass
class TodoComplete:
    """To ``system.todo``: that is done."""

    id: str


@dataclass
class TodoClosed:
    """What ``TodoComplete`` is answered: ``was_raised`` where what it waited for had come."""

    id: str
    was_raised: bool = False


def scratch() -> MutableMapping[str, Any]:
    """What the handler keeps for the conversation whose message it handles now: gone when that is over.

    A self-call finds it again; after ``respond`` nobody does (SPEC HC-18). It holds 1,000 entries and 16 MiB
    at most. Raises RuntimeError where no message is being handled.
    """
    invocation = current()
    if invocation is None:
        raise RuntimeError("scratch() is for handlers of a fleet: there is no message being handled here")
    return invocation.scratch
