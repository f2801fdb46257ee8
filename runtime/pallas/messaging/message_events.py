"""Report a run's messages: events for readers, the record and the log for operators."""

import logging
from dataclasses import replace
from time import time
from typing import Final

from pallas.model import Fault, MessagePassed, TodoChanged, ToolEvent
from pallas.model.event_types import MessageOutcome, MessageRoute, TodoStatus, ToolPhase
from pallas.payloads import Payload
from pallas.safe_text import one_line
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.trace_context import current_run

from .frames import HandlerFrame, Passing
from .message_log import LoggedMessage, RunMessageLog
from .messaging_port import Emit
from .todos import Watcher

log = logging.getLogger("pallas.messaging")

_MAX_DETAIL: Final = 300
_MAX_NAME: Final = 120


class MessageEvents:
    """Counts and reports the messages of one run of ``agent``. ``root`` is the frame above its first ones."""

    def __init__(self, run_id: str, agent: str, root: str, emit: Emit, record: RunMessageLog) -> None:
        self._run_id = run_id
        self._agent = agent
        self._root = root
        self._emit = emit
        self._record = record
        self._steps: dict[str, OpenStep] = {}
        self.number = 0

    def message(
        self,
        frame: HandlerFrame | None,
        payload: Payload | None,
        sender: str,
        to: str,
        route: MessageRoute,
        *,
        outcome: MessageOutcome = "delivered",
        left: str = "",
        fault: Fault | None = None,
        detail: str = "",
    ) -> LoggedMessage:
        """Report a routed message; ``frame`` None is the root, where messages from outside begin."""
        self.number += 1
        raw = payload.xml if payload is not None else b""
        event = MessagePassed(
            run_id=self._run_id,
            agent=self._agent,
            number=self.number,
            sender=sender,
            to=to,
            frame=frame.id if frame is not None else self._root,
            route=route,
            outcome=outcome,
            parent=self._above(frame) if frame is not None else "",
            left=left,
            payload=_name(payload) if payload is not None else "",
            size=len(raw),
            code=fault.system_code if fault is not None else "",
            detail=one_line(detail, _MAX_DETAIL) if detail else "",
            span_id=frame.span if frame is not None else "",
        )
        logged = self._record.add(event, raw)
        self._emit(event)
        return logged

    def dropped(self, frame: HandlerFrame, passing: Passing) -> None:
        """Report a message that was routed and never handled, because its frame is over (HC-18)."""
        again = replace(
            passing.logged.event,
            seq=0,
            at=time(),
            outcome="dropped",
            detail="its frame ended before it was handled",
        )
        passing.logged.event = again
        self._emit(again)
        self._late(frame, passing.sender, passing.payload)

    def late(self, frame: HandlerFrame, to: str | None, payload: Payload, *, tell: bool) -> None:
        """Report an answer to a frame that is over; ``tell`` while the run goes on (HC-18)."""
        self._late(frame, frame.agent, payload)
        if tell:
            target = frame.caller if to is None else one_line(to, _MAX_NAME)
            self.message(
                frame,
                payload,
                frame.agent,
                target,
                "respond" if to is None else "call",
                outcome="dropped",
                detail="its frame is over",
            )

    def _late(self, frame: HandlerFrame, sender: str, payload: Payload) -> None:
        """Log both names, for operators."""
        log.info(
            "%s: dropped %s of %s: frame %s is over",
            frame.agent,
            _name(payload),
            sender,
            frame.id,
            extra=self._extra,
        )

    def refused(
        self, frame: HandlerFrame, to: str, payload: Payload | None, fault: Fault, detail: str
    ) -> None:
        """Report a refused message; the log has both names, the sender learns neither (HC-12)."""
        shown = one_line(to, _MAX_NAME) if to else ""
        # Without a payload its target is not known yet.
        what = f"a message to {shown or 'its caller'}" if shown or payload is not None else "what it returned"
        log.warning("%s: %s was refused: %s", frame.agent, what, detail, extra=self._extra)
        self.message(
            frame, payload, frame.agent, shown, "call", outcome="refused", fault=fault, detail=detail
        )

    def frame(self, frame: HandlerFrame, phase: ToolPhase) -> None:
        """Report the begin or the end of a frame below the first one."""
        if frame.depth > 1:
            self._record_call(frame, phase)
            self._emit(
                ToolEvent(
                    run_id=self._run_id,
                    agent=self._agent,
                    server=frame.agent,
                    tool=frame.opened_with,
                    phase=phase,
                    call_id=frame.id,
                    nested=frame.depth > 2,
                    span_id=frame.span,
                )
            )

    def _record_call(self, frame: HandlerFrame, phase: ToolPhase) -> None:
        run = current_run()
        if phase == "started" and run is not None and run.steps is not None:
            caller = self._steps.get(frame.outer)
            self._steps[frame.id] = run.steps.begin(
                "agent",
                name=frame.agent,
                parent=caller.number if caller is not None else 0,
                call_id=frame.id,
                span_id=frame.span,
                request=run.steps.split_call(frame.agent, {"payload": frame.opened_with}),
            )
        elif phase != "started" and (step := self._steps.pop(frame.id, None)) is not None:
            step.finish("done" if phase == "completed" else "failed")

    def ended(self, frame: HandlerFrame) -> None:
        """Report a frame that ended without an answer."""
        self.message(frame.parent, None, frame.agent, frame.caller, "end", left=frame.id)

    def todo(self, frame: HandlerFrame, todo: Watcher, status: TodoStatus) -> None:
        """Report that a watcher of that frame was registered, raised or closed."""
        self._emit(
            TodoChanged(
                run_id=self._run_id,
                agent=self._agent,
                todo=todo.id,
                actor=frame.agent,
                frame=frame.id,
                status=status,
                wait_for=todo.wait_for,
                from_agent=todo.from_agent,
                description=todo.description,
                was_raised=todo.raised and status == "closed",
            )
        )

    @property
    def _extra(self) -> dict[str, str]:
        return {"agent": self._agent, "run_id": self._run_id}

    def _above(self, frame: HandlerFrame) -> str:
        return frame.outer or self._root


def _name(payload: Payload) -> str:
    """Return the name of its class, or of an untyped payload's element, which a handler chooses."""
    return payload.name if payload.key else one_line(payload.name, _MAX_NAME)
