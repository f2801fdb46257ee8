"""Work that has to ask its caller something on the way: a handler says ``answer = await ask("Which one?")``.

Only a task whose caller can be asked has somebody to answer (``pallas.tasks``): everything else that runs has
a caller who waits for one answer, and there ``ask`` is refused.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pallas.model import Fault, FaultType

Action = Literal["accept", "decline", "cancel"]
ASK_TIMEOUT: Final = 3600.0
"""Seconds that a question waits for its answer where nothing else is said."""
_TEXT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}

Asker = Callable[[str, Mapping[str, Any], float], Awaitable["Answered"]]


@dataclass(frozen=True, slots=True)
class Answered:
    """What a caller said: ``content`` is there where the ``action`` is ``accept``."""

    action: Action
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The answer to a question that was asked without a schema; empty where there is none."""
        found = self.content.get("answer") if self.action == "accept" else None
        return found if isinstance(found, str) else ""


asker: Final[ContextVar[Asker | None]] = ContextVar("pallas.asker", default=None)
"""Who can be asked by what runs here; set around a run by whoever can."""


def can_ask() -> bool:
    """Whether the caller of what runs here can be asked."""
    return asker.get() is not None


async def ask(
    message: str, schema: Mapping[str, Any] | None = None, *, timeout: float = ASK_TIMEOUT
) -> Answered:
    """Ask the caller of what runs here, and wait ``timeout`` seconds for the answer.

    ``schema`` is that of a form: an object of plain fields; without one a text is asked for. Raises Fault:
    UPSTREAM where nobody can be asked, TIMEOUT where nobody answered.
    """
    who = asker.get()
    if who is None:
        raise Fault(
            FaultType.UPSTREAM,
            "this work wants to ask its caller something, and nobody can be asked: that needs a task, made "
            "by a client that declares io.modelcontextprotocol/tasks and elicitation",
        )
    return await who(message, _TEXT if schema is None else schema, timeout)
