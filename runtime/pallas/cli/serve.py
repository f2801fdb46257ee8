"""A fleet without a workbench: served until a signal says stop."""

import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from pallas.config import ConfigError, Project, export_env, load_project
from pallas.events import Hub
from pallas.fleet.fleet import Fleet
from pallas.fleet.loop import run
from pallas.log import close_logging, redact_project, setup_logging
from pallas.model import AgentChanged, AgentState, Event, Fault, FleetChanged, FleetState, Notice

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
        return run(_serve(project, agent, dev, log_file))
    finally:
        close_logging()


async def _serve(project: Project, agent: str | None, dev: bool, log_file: Path) -> int:
    stop = asyncio.Event()
    _heed_signals(asyncio.get_running_loop(), stop)
    hub = Hub()
    hub.listen(_Narrator(project.name).hear)
    try:
        fleet = Fleet(project, hub=hub, dev=dev, only=agent)
        fleet.reserve()
    except (Fault, ConfigError) as error:
        print(error, file=sys.stderr)
        return 2
    _say(project.name, f"log {log_file}")
    if fleet.registry_url:
        _say(project.name, f"registry {fleet.registry_url}")
    starting = asyncio.create_task(fleet.start())
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            setup_logging(project.log_level)
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


def _heed_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # Not the loop's own handlers: they never run while an agent's code blocks the loop.
    asked = False

    def on_signal(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            os._exit(130)
        asked = True
        loop.call_soon_threadsafe(stop.set)
        last = threading.Timer(LAST_RESORT, _give_up)
        last.daemon = True
        last.start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)


def _give_up() -> None:
    log.error("the fleet did not stop: an agent's code blocks it; ended by force")
    close_logging()
    os._exit(1)


class _Narrator:
    """Tells on stdout what a person who started the fleet waits for."""

    def __init__(self, project: str) -> None:
        self._project = project

    def hear(self, event: Event) -> None:
        if isinstance(event, AgentChanged) and event.state in (AgentState.READY, AgentState.ERROR):
            _say(self._project, f"{event.agent}: {event.detail or event.state.value}")
        elif isinstance(event, Notice) and event.level != "info":
            print(f"[{self._project}] {event.level}: {event.text}", file=sys.stderr, flush=True)
        elif isinstance(event, FleetChanged) and event.state in (FleetState.RUNNING, FleetState.STOPPED):
            _say(self._project, event.state.value)


def _say(project: str, text: str) -> None:
    print(f"[{project}] {text}", flush=True)
