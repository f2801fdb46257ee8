"""Passes the events of a nested run on to the run that called it."""

from dataclasses import replace
from typing import Any

from pallas.model import Event, StepStarted, TextDelta, ToolEvent

from .base import Emit


class NestedEvents:
    """The listener of a nested run: its calls and steps become the outer run's, marked ``nested``.

    ``run_id`` and ``agent`` are the outer run's, ``span`` that of its call; ``with_text`` passes text on,
    under the name of its agent. Once ``is_closed`` no event is passed on any more.
    """

    def __init__(self, run_id: str, agent: str, span: str, emit: Emit, *, with_text: bool = False) -> None:
        self._run_id = run_id
        self._agent = agent
        self._span = span
        self._emit = emit
        self._with_text = with_text
        self.is_closed = False

    def __call__(self, event: Event) -> None:
        """Pass one event of the nested run on."""
        if self.is_closed:
            return
        own: dict[str, Any] = {"run_id": self._run_id, "agent": self._agent, "seq": 0}
        match event:
            case ToolEvent():
                # Its span belongs to the run that made the call: child spans are found there.
                call = f"{self._span}.{event.call_id}"
                below = replace(event, **own, call_id=call, nested=True, span_id="")
                self._emit(replace(below, relayed=True, error=""))
            case StepStarted() if event.actor != self._agent:
                self._emit(replace(event, **own))
            case TextDelta() if self._with_text and not (event.reasoning or event.rollback):
                # No called agent may use the agent's own name.
                if (actor := event.actor or event.agent) != self._agent:
                    self._emit(replace(event, **own, actor=actor))
