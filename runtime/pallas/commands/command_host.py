"""What the commands ask of whoever shows a conversation. What cannot be done is raised as a Fault."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pallas.model import AgentDetail, Params, ThreadRecord


@dataclass(frozen=True, slots=True)
class ShownParameter:
    """Something that ``/set`` shows and sets. ``values`` are some that may stand there."""

    name: str
    value: str
    help: str
    values: tuple[str, ...] = ()


class ChatHost(Protocol):
    """What every conversation can do. What not every one can is in the protocols below."""

    def parameters(self) -> Sequence[ShownParameter]:
        """How the conversation is held, and what of it is now. A credential is never among the values."""
        ...

    async def set(self, name: str, value: str) -> str:
        """Set one of them; returns what it is now, in words."""
        ...

    async def describe(self) -> AgentDetail:
        """The agent: its instruction and its tools."""
        ...

    async def clear(self) -> str:
        """Begin anew with the same agent: the next message is the first of another conversation."""
        ...

    async def export(self, form: str, path: str) -> str:
        """Write the transcript as ``md`` or ``json``, empty for as the path says; without one ask for it."""
        ...

    def facts(self) -> Sequence[tuple[str, str]]:
        """What is known of the conversation, as names and values."""
        ...

    async def quit(self) -> None:
        """Leave."""
        ...


@runtime_checkable
class Tunable(Protocol):
    """A conversation whose agent takes parameters of its model with each message."""

    def overrides(self) -> Params:
        """Those of this conversation, which go before the agent's own."""
        ...

    def override(self, params: Params) -> None:
        """From the next message on these are all of them."""
        ...

    async def save(self, params: Params) -> str:
        """Lay these over the agent's own defaults, for everyone and from now on; returns that in words."""
        ...


@runtime_checkable
class Threaded(Protocol):
    """A host that knows the agent's earlier conversations."""

    def known_threads(self) -> Sequence[str]:
        """Ids that were listed, for completion."""
        ...

    async def threads(self) -> Sequence[ThreadRecord]:
        """The agent's conversations that this caller may see, last used first, some 20."""
        ...

    async def resume(self, thread: str) -> str:
        """Go on with that one; returns what there is to say of it."""
        ...


@runtime_checkable
class Attaching(Protocol):
    """A host that can send pictures."""

    async def attach(self, path: str) -> str:
        """Send this picture with the next message; without a path choose one."""
        ...


@runtime_checkable
class Repeating(Protocol):
    """A host that can ask again."""

    async def retry(self) -> str:
        """Send the last message once more."""
        ...
