"""A fleet without a workbench: served until a signal says stop."""

import asyncio
import gc
import logging
import os
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final

from pallas.config import ConfigError, Project, export_env, load_project
from pallas.events import Hub
from pallas.fleet.fleet import Fleet
from pallas.fleet.loop import run
from pallas.fleet.port import offer_control
from pallas.log import close_logging, redact_project, setup_logging
from pallas.model import (
    FAILED_STATES,
    AgentChanged,
    AgentState,
    Event,
    Fault,
    FleetChanged,
    FleetState,
    LoopBlocked,
    Notice,
)

from .signals import StopSignals

log = logging.getLogger(__name__)

LAST_RESORT: Final = 6.0


def serve(root: Path, *, agent: str | None = None, dev: bool = False) -> int:
    """Serve the project at ``root`` until SIGINT or SIGTERM; returns the exit status.

    0 after an orderly stop, 2 when the project cannot be used: its mistakes are on stderr, a line each.
    A second signal ends the process at once with status 130; a fleet that does not stop, because an
    agent's code blocks it, is ended after six seconds with status 1.
    """
    try:
        export_env(root)
        project = load_project(root)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if agent is not None and agent not in project.agents:
        known = ", ".join(project.agents)
        print(f"{project.agents_file.name}: no agent {agent!r}; known: {known}", file=sys.stderr)
        return 2
    log_file = setup_logging(project.log_level)
    redact_project(project)
    try:
        with StopSignals() as signals:
            return _Serving(project, agent, dev, log_file, signals).run()
    finally:
        close_logging()


class _Serving:
    """A fleet on a thread of its own, so that this one hears signals whatever the agents' code does."""

    def __init__(
        self, project: Project, agent: str | None, dev: bool, log_file: Path, signals: StopSignals
    ) -> None:
        self._project = project
        self._agent = agent
        self._dev = dev
        self._log_file = log_file
        self._signals = signals
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._asked = threading.Event()
        self._outcome: Future[int] = Future()

    def run(self) -> int:
        """Serve; the exit status. Does not return when the process has to be ended."""
        threading.Thread(target=self._main, name="fleet", daemon=True).start()
        if self._signals.wait():
            self._asked.set()
            if self._loop is not None:
                with suppress(RuntimeError):  # it has just ended
                    self._loop.call_soon_threadsafe(self._stop.set)
            again = self._signals.wait(LAST_RESORT)
            if again:
                os._exit(130)
            if again is None:
                _give_up()
        return self._outcome.result()

    def _main(self) -> None:
        try:
            self._outcome.set_result(run(self._serve()))
        except BaseException as error:
            self._outcome.set_exception(error)
        finally:
            self._signals.finish()

    async def _serve(self) -> int:
        project = self._project
        self._loop = asyncio.get_running_loop()
        if self._asked.is_set():
            return 0
        hub = Hub()
        hub.listen(_Narrator(project.name).hear)
        try:
            fleet = Fleet(project, hub=hub, dev=self._dev, only=self._agent)
            fleet.reserve()
        except (Fault, ConfigError) as error:
            print(error, file=sys.stderr)
            return 2
        offer_control(fleet, self._log_file)
        _say(project.name, f"log {self._log_file}")
        if fleet.registry_url:
            _say(project.name, f"registry {fleet.registry_url}")
        if fleet.control_api is not None:
            _say(project.name, f"attach with: pallas dev --attach http://127.0.0.1:{project.registry_port}")
        starting = asyncio.create_task(fleet.start())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                # What the start made stays. Looking through it for garbage would hold up every caller for
                # a quarter of a second now and then, and cost a fifth of each message.
                gc.freeze()
                await stopped
            return 0
        except Fault as fault:
            print(fault.message, file=sys.stderr)
            return 2
        finally:
            for task in (starting, stopped):
                task.cancel()
            await asyncio.wait({starting, stopped}, timeout=1.0)
            await fleet.stop()


def _give_up() -> None:
    # Even the log may be in the hands of what blocks: it gets a second.
    last = threading.Timer(1.0, os._exit, (1,))
    last.daemon = True
    last.start()
    log.error("the fleet did not stop: an agent's code blocks it; ended by force")
    close_logging()
    os._exit(1)


class _Narrator:
    """Tells on stdout what a person who started the fleet waits for."""

    def __init__(self, project: str) -> None:
        self._project = project

    def hear(self, event: Event) -> None:
        if isinstance(event, AgentChanged) and (
            event.state is AgentState.READY or event.state in FAILED_STATES
        ):
            _say(self._project, f"{event.agent}: {event.detail or event.state.value}")
        elif isinstance(event, Notice) and event.level != "info":
            print(f"[{self._project}] {event.level}: {event.text}", file=sys.stderr, flush=True)
        elif isinstance(event, LoopBlocked) and not event.over:
            where = f" at {event.place}" if event.place else ""
            text = f"{event.agent or 'something'} blocks the event loop of all agents{where}"
            print(f"[{self._project}] warning: {text}", file=sys.stderr, flush=True)
        elif isinstance(event, FleetChanged) and event.state in (FleetState.RUNNING, FleetState.STOPPED):
            _say(self._project, event.state.value)


def _say(project: str, text: str) -> None:
    print(f"[{project}] {text}", flush=True)
