"""What happens in a run that another one asked for, as the other tells it."""

from dataclasses import replace
from typing import Any

from pallas.model import Event, StepStarted, TextDelta, ToolEvent

from .base import Emit


class NestedEvents:
    """The listener of a run below another: its calls and steps become that one's, marked ``nested``.

    ``run_id`` and ``agent`` are the other's, ``span`` that of the call which asked; ``with_text`` passes on
    what is written, under the name of who writes. Once it is ``over`` nothing is passed on any more.
    """

    def __init__(self, run_id: str, agent: str, span: str, emit: Emit, *, with_text: bool = False) -> None:
        self._run_id = run_id
        self._agent = agent
        self._span = span
        self._emit = emit
        self._with_text = with_text
        self.over = False

    def __call__(self, event: Event) -> None:
        """Hear one event of the run below."""
        if self.over:
            return
        own: dict[str, Any] = {"run_id": self._run_id, "agent": self._agent, "seq": 0}
        match event:
            case ToolEvent():
                # Its span belongs to the run that made the call: what hangs below that is found there.
                call = f"{self._span}.{event.call_id}"
                self._emit(replace(event, **own, call_id=call, nested=True, span_id="", relayed=True))
            case StepStarted() if event.actor != self._agent:
                self._emit(replace(event, **own))
            case TextDelta() if self._with_text and not (event.reasoning or event.rollback):
                # Nobody below speaks in the agent's own name.
                if (actor := event.actor or event.agent) != self._agent:
                    self._emit(replace(event, **own, actor=actor))
