"""What a typed handler's code may use while it handles one message, bound to the context that it runs in."""

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one completion, or the sum over an agent's."""

    prompt: int = 0
    completion: int = 0

    @property
    def total(self) -> int:
        """The sum of both."""
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """The response of a model."""

    content: str
    model: str = ""
    usage: TokenUsage = TokenUsage()
    finish_reason: str = "stop"
    backend: str = ""  # the backend that answered
    raw: Mapping[str, Any] = _NOTHING  # the rest of the response, as plain values


@dataclass(frozen=True, slots=True)
class Completion:
    """A request of a handler to a model."""

    model: str
    messages: Sequence[Mapping[str, Any]]  # ``{"role": ..., "content": ...}``
    params: Mapping[str, Any] = _NOTHING


class Completer(Protocol):
    """Asks a model on behalf of a handler. It is bound to one handler, thread and run."""

    async def complete(self, completion: Completion) -> LLMResponse:
        """Ask the model. Raises Fault."""
        ...


class TodoList(Protocol):
    """The todos of one conversation of a handler, for code that uses them without messages."""

    def register(self, wait_for: str, from_listener: str, description: str) -> str:
        """Add a todo and return its id. Raises Fault."""
        ...

    def raised(self) -> Sequence[Any]:
        """The todos whose message has arrived, each with ``id``, ``wait_for`` and ``description``."""
        ...

    def pending(self) -> Sequence[Any]:
        """The todos whose message has not arrived."""
        ...

    def complete(self, id: str) -> bool:  # noqa: A002 - as in the messages
        """Close a todo; False if there is none of that id."""
        ...


@dataclass(frozen=True, slots=True)
class Invocation:
    """One message that is being handled."""

    agent: str
    thread_id: str
    run_id: str = ""
    completer: Completer | None = None
    # belongs to the frame and is dropped with it
    scratch: MutableMapping[str, Any] = field(default_factory=dict)
    todos: TodoList | None = None  # None if the handler can only message ``system.todo``


_current: ContextVar[Invocation | None] = ContextVar("pallas_invocation", default=None)


def current() -> Invocation | None:
    """The message that this code handles, None outside of one."""
    return _current.get()


@contextmanager
def handling(invocation: Invocation) -> Iterator[None]:
    """Bind this block, and the tasks started in it, to that message."""
    token = _current.set(invocation)
    try:
        yield
    finally:
        _current.reset(token)
