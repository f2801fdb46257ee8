"""What the commands need from a conversation. An action that cannot be done raises Fault."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pallas.model import AgentDetail, Params, ThreadRecord


@dataclass(frozen=True, slots=True)
class ShownParameter:
    """A setting that ``/set`` shows and changes. ``values`` are some of the allowed ones."""

    name: str
    value: str
    help: str
    values: tuple[str, ...] = ()


class ChatHost(Protocol):
    """What every conversation can do. The protocols below add what only some can."""

    def parameters(self) -> Sequence[ShownParameter]:
        """Return the settings of the conversation with their values. A credential is never among them."""
        ...

    async def set(self, name: str, value: str) -> str:
        """Set one of them; returns its value now, in words."""
        ...

    async def describe(self) -> AgentDetail:
        """Return the agent: its instruction and its tools."""
        ...

    async def clear(self) -> str:
        """Start another conversation with the same agent: the next message is its first."""
        ...

    async def export(self, form: str, path: str) -> str:
        """Write the transcript as ``md`` or ``json`` (empty: by ``path``); without a path ask for one."""
        ...

    def facts(self) -> Sequence[tuple[str, str]]:
        """Return the facts about the conversation, as names and values."""
        ...

    async def quit(self) -> None:
        """Leave the conversation."""
        ...


@runtime_checkable
class Tunable(Protocol):
    """A conversation whose agent accepts parameters of its model with each message."""

    def overrides(self) -> Params:
        """Return the parameters of this conversation, which override the agent's own."""
        ...

    def override(self, params: Params) -> None:
        """Replace them all from the next message on."""
        ...

    async def save(self, params: Params) -> str:
        """Merge these into the agent's own defaults, for all callers; returns that in words."""
        ...


@runtime_checkable
class Threaded(Protocol):
    """A host that knows the agent's earlier conversations."""

    def known_threads(self) -> Sequence[str]:
        """Return the ids listed so far, for completion."""
        ...

    async def threads(self) -> Sequence[ThreadRecord]:
        """Return the agent's conversations that this caller may see, last used first, about 20."""
        ...

    async def resume(self, thread: str) -> str:
        """Continue that conversation; returns a summary of it."""
        ...


@runtime_checkable
class Attaching(Protocol):
    """A host that can send pictures."""

    async def attach(self, path: str) -> str:
        """Send this picture with the next message; without a path choose one."""
        ...


@runtime_checkable
class Repeating(Protocol):
    """A host that can send a message again."""

    async def retry(self) -> str:
        """Send the last message once more."""
        ...
