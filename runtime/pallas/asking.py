"""Ask the caller of a run: ``answer = await ask("Which one?")`` in a handler or a tool.

The question reaches the person who called the outermost run, wherever the call came from, and anyone else who
may answer it (docs/policy.md#questions).
"""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from pallas.model import Fault, FaultType

Action = Literal["accept", "decline", "cancel"]
ASK_TIMEOUT: Final = 3600.0
"""Default seconds to wait for an answer."""
_TEXT: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}


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


class Asker(Protocol):
    """Asks people for one run."""

    async def form(
        self,
        message: str,
        schema: Mapping[str, Any],
        seconds: float | None = None,
        *,
        server: str = "",
        call_id: str = "",
    ) -> Answered:
        """Have a person fill in a form, within ``seconds`` or the project's own limit.

        ``server`` is the downstream that asks. Raises Fault: TIMEOUT if there is no answer, PROTOCOL for a
        schema that is no form, UPSTREAM if too many questions wait or the run is over.
        """
        ...


asker: Final[ContextVar[Asker | None]] = ContextVar("pallas.asker", default=None)
"""Asks people for the current run; None outside of a run."""


def can_ask() -> bool:
    """Whether the caller of the current run can be asked."""
    return asker.get() is not None


async def ask(
    message: str, schema: Mapping[str, Any] | None = None, *, timeout: float = ASK_TIMEOUT
) -> Answered:
    """Ask the caller of the current run and return the answer, after at most ``timeout`` seconds.

    ``schema`` is the JSON Schema of a form: an object whose fields are text, numbers, booleans or choices.
    Without it the answer is a text. Raises Fault: TIMEOUT if no person answered in time, PROTOCOL for a
    schema that is not a form, UPSTREAM outside of a run or if too many questions wait.
    """
    own = asker.get()
    if own is None:
        raise Fault(FaultType.UPSTREAM, "ask() is for code that works for a run; there is none here")
    return await own.form(message, _TEXT if schema is None else schema, timeout)
