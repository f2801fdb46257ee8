"""What a handler's own code may reach while it handles one message, by the context that it runs in."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one completion, or of an agent's together."""

    prompt: int = 0
    completion: int = 0

    @property
    def total(self) -> int:
        """Both together."""
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """What a model answered (SPEC 5.1). ``backend`` is who; ``raw`` what else it said, plain values."""

    content: str
    model: str = ""
    usage: TokenUsage = TokenUsage()
    finish_reason: str = "stop"
    backend: str = ""
    raw: Mapping[str, Any] = _NOTHING


@dataclass(frozen=True, slots=True)
class Completion:
    """What a handler asks of a model. ``messages`` are ``{"role": ..., "content": ...}``."""

    model: str
    messages: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any] = _NOTHING


class Completer(Protocol):
    """Asks a model on behalf of a handler; who asks, for which thread and run is known to it already."""

    async def complete(self, wanted: Completion) -> LLMResponse:
        """Raises Fault."""
        ...


class TodoList(Protocol):
    """The todos of one conversation of a handler, for code that keeps them without messages."""

    def register(self, wait_for: str, from_listener: str, description: str) -> str:
        """The id of a new one. Raises Fault."""
        ...

    def raised(self) -> Sequence[Any]:
        """Those for which what they wait for has come, each with ``id``, ``wait_for``, ``description``."""
        ...

    def pending(self) -> Sequence[Any]:
        """Those for which it has not."""
        ...

    def complete(self, id: str) -> bool:  # noqa: A002 - as in the messages
        """Close one; whether there was one."""
        ...


@dataclass(frozen=True, slots=True)
class Invocation:
    """One message that is being handled. ``scratch`` is the frame's own, gone when the frame is over.

    ``todos`` None where the handler can only send messages to ``system.todo``.
    """

    agent: str
    thread_id: str
    run_id: str = ""
    completer: Completer | None = None
    scratch: MutableMapping[str, Any] = field(default_factory=dict)
    todos: TodoList | None = None


_current: ContextVar[Invocation | None] = ContextVar("pallas_invocation", default=None)


def current() -> Invocation | None:
    """The message that this code handles; None outside of one."""
    return _current.get()


@contextmanager
def handling(invocation: Invocation) -> Iterator[None]:
    """What happens in this block, and in the tasks begun in it, is done for that message."""
    token = _current.set(invocation)
    try:
        yield
    finally:
        _current.reset(token)
