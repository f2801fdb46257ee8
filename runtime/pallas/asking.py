"""Lets work ask its caller something: a handler says ``answer = await ask("Which one?")``.

Only the caller of a task can be asked (``pallas.tasks``). All other callers wait for one answer, and ``ask``
raises.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pallas.model import Fault, FaultType

Action = Literal["accept", "decline", "cancel"]
ASK_TIMEOUT: Final = 3600.0
"""Default seconds to wait for an answer."""
_TEXT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}

Asker = Callable[[str, Mapping[str, Any], float], Awaitable["Answered"]]


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer of a caller. ``content`` is set if the ``action`` is ``accept``."""

    action: Action
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The answer to a question without a schema; empty if there is none."""
        found = self.content.get("answer") if self.action == "accept" else None
        return found if isinstance(found, str) else ""


asker: Final[ContextVar[Asker | None]] = ContextVar("pallas.asker", default=None)
"""Asks the caller of the current run; None if it cannot be asked."""


def can_ask() -> bool:
    """Whether the caller of the current run can be asked."""
    return asker.get() is not None


async def ask(
    message: str, schema: Mapping[str, Any] | None = None, *, timeout: float = ASK_TIMEOUT
) -> Answered:
    """Ask the caller of the current run, and wait ``timeout`` seconds for the answer.

    ``schema`` describes a form: an object of plain fields. Without one the answer is a text. Raises Fault:
    UPSTREAM if the caller cannot be asked, TIMEOUT if it did not answer.
    """
    ask_caller = asker.get()
    if ask_caller is None:
        raise Fault(
            FaultType.UPSTREAM,
            "this work wants to ask its caller something, but the caller cannot be asked: that needs a task, "
            "made by a client that declares io.modelcontextprotocol/tasks and elicitation",
        )
    return await ask_caller(message, _TEXT if schema is None else schema, timeout)
