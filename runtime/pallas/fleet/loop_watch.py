"""Reports what blocks the event loop while it is blocked.

All agents of a fleet share a loop. Code that does not give it back (a ``time.sleep``, a long computation, a
database without ``await``) stops every other agent, its own cancellation and the health checks. Nothing in
the loop can report that; a thread can.
"""

import asyncio
import logging
import traceback
from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from pallas.model import LoopBlocked
from pallas.model.redaction import redact_text
from pallas.safe_text import sanitize
from pallas.telemetry.event_hub import EventHub
from pallas.telemetry.stall_watch import Stall, StallWatch
from pallas.telemetry.trace_context import run_of

log = logging.getLogger(__name__)

MAX_FRAMES: Final = 60
_MAX_STACK: Final = 20_000
_MODEL_CLIENT: Final = str(Path("fast_agent", "llm"))


class LoopWatch:
    """Publishes ``LoopBlocked`` when the running loop makes no progress for ``lag`` seconds.

    ``root`` is the project whose file and line are reported. Each time there are two events: when it is
    noticed and when it is over. A fleet imports in its loop while it starts: watch it once it runs. ``apart``
    tells of an agent whether it may have a process of its own.
    """

    def __init__(
        self, hub: EventHub, root: Path, lag: float, apart: Callable[[str], bool] = lambda agent: True
    ) -> None:
        self._hub = hub
        self._root = root
        self._apart = apart
        self._watch = StallWatch(lag, self._tell)

    def start(self) -> None:
        """Begin, in the loop that is to be watched."""
        self._watch.start()

    def stop(self) -> None:
        """End; returns at once, the thread is gone within a moment."""
        self._watch.stop()

    def _tell(self, stall: Stall) -> None:
        agent, run_id = _on_behalf_of(stall.loop)
        frame = stall.frame
        stack = traceback.extract_stack(frame, MAX_FRAMES) if frame is not None else traceback.StackSummary()
        place = self._place(frame)
        if not place and any(_MODEL_CLIENT in each.filename for each in stack):
            agent = ""  # a model's answer is read, which no code of the agent does
        story = sanitize(redact_text("".join(stack.format())), _MAX_STACK)
        seconds = stall.seconds()
        extra = {"agent": agent, "run_id": run_id}
        log.warning(
            "%s blocks the event loop of all agents for %.1f s now%s; use await%s\n%s",
            agent or "something",
            seconds,
            f", at {place}" if place else "",
            ", asyncio.to_thread, or isolation: process" if self._apart(agent) else " or asyncio.to_thread",
            story,
            extra=extra,
        )
        self._hub.publish(LoopBlocked(seconds=seconds, agent=agent, place=place, stack=story))
        seconds = stall.wait()
        log.warning(
            "the event loop runs again; %s blocked it for %.1f s", agent or "something", seconds, extra=extra
        )
        self._hub.publish(LoopBlocked(seconds=seconds, agent=agent, place=place, stack=story, over=True))

    def _place(self, frame: FrameType | None) -> str:
        """The innermost line of the project's own files, relative to it; empty when there is none."""
        while frame is not None:
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(self._root) and "site-packages" not in path.parts:
                return sanitize(f"{path.relative_to(self._root)}:{frame.f_lineno}", 300)
            frame = frame.f_back
        return ""


def _on_behalf_of(loop: AbstractEventLoop) -> tuple[str, str]:
    """The agent and the run that the loop's current task works for; empty where it works for none."""
    task = asyncio.current_task(loop)
    run = run_of(task.get_context()) if task is not None else None
    return (run.agent, run.run_id) if run is not None else ("", "")
