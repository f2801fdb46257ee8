"""Plugins that hear the events of a fleet, each in a thread of its own."""

import asyncio
import logging
from collections.abc import Callable
from threading import Event as Signal
from threading import Thread
from time import monotonic
from typing import Any, Final

from pallas.config import Project
from pallas.executors.project_plugins import plugins_of
from pallas.model import Event, Notice
from pallas.plugins import installed_plugins
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

log = logging.getLogger(__name__)

_HOOK: Final = "fleet_event"
_END_S: Final = 2.0
"""Seconds that a plugin has for the events that are left when the fleet ends."""
_MAX_FAILURES: Final = 10
"""Events in a row that a plugin may fail at; then it hears no more."""
_AT_ONCE: Final = 500


class EventSinks:
    """The plugins of a fleet that hear its events, those before ``start`` included.

    What a plugin raises is logged and is in the feed, once in a row of failures.
    """

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._from = hub.seq
        self._sinks: list[_Sink] = []
        self._is_closed = False

    async def start(self, project: Project) -> None:
        """Load the plugins of the project and of installed packages. Problems of them are in log and feed."""
        await asyncio.to_thread(self._load, project)

    async def close(self, left: float) -> None:
        """End the threads: each may work on what is left for two seconds, or ``left`` if that is less."""
        self._is_closed = True
        until = monotonic() + min(left, _END_S)
        for sink in self._sinks:
            sink.end()
        for sink in self._sinks:
            await asyncio.to_thread(sink.thread.join, max(0.0, until - monotonic()))

    def _load(self, project: Project) -> None:
        for plugins in (installed_plugins(), plugins_of(project)):
            for problem in plugins.problems:
                self._report(str(problem))
            if not self._is_closed:
                calls = plugins.calls(_HOOK)
                self._sinks += [_Sink(name, hear, self._hub, self._from) for name, hear in calls]

    def _report(self, text: str) -> None:
        log.warning("%s", text)
        self._hub.publish(Notice(level="warning", text=text))


class _Sink:
    """A thread that gives a plugin the events of the ring one after the other."""

    def __init__(self, name: str, hear: Callable[..., Any], hub: EventHub, seq: int) -> None:
        self._name, self._hear, self._hub, self._seq = name, hear, hub, seq
        self._failures = 0
        self._news = Signal()
        self._is_ending = False
        self._unlisten = hub.listen(lambda event: self._news.set())
        self.thread = Thread(target=self._work, name=f"plugin {name}", daemon=True)
        self.thread.start()

    def end(self) -> None:
        self._is_ending = True
        self._news.set()

    def _work(self) -> None:
        try:
            while self._failures < _MAX_FAILURES:
                self._news.clear()
                is_ending = self._is_ending
                batch = self._hub.since(self._seq, _AT_ONCE)
                if batch.dropped:
                    log.warning("plugin %s is too slow: it missed %d events", self._name, batch.dropped)
                for event in batch.events:
                    self._tell(event)
                    self._seq = event.seq
                if not batch.events:
                    if is_ending:
                        return
                    self._news.wait()
        finally:
            self._unlisten()

    def _tell(self, event: Event) -> None:
        if self._failures >= _MAX_FAILURES:
            return
        try:
            self._hear(event=event)
        except (Exception, SystemExit) as error:
            self._failures += 1
            if self._failures in (1, _MAX_FAILURES):
                self._complain(error)
        else:
            self._failures = 0

    def _complain(self, error: BaseException) -> None:
        over = "; it receives no more events" if self._failures == _MAX_FAILURES else ""
        text = one_line(f"plugin {self._name}: {_HOOK} failed: {type(error).__name__}: {error}", 300) + over
        log.warning("%s", text, exc_info=error)
        self._hub.publish(Notice(level="warning", text=text))
