"""`pallas bridge`: the fleet of a project as an MCP server on stdin and stdout."""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from .resources.shared_options import ChatTokenOption, ChatUrlOption, ProjectOption

if TYPE_CHECKING:
    import asyncio

    from pallas.config import Project

UNUSABLE: Final = 2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIGNALLED: Final = 128
_END_S: Final = 0.9
"""Seconds for an orderly end once stdin has ended; whatever still runs then is killed."""


def bridge(
    context: typer.Context,
    url: ChatUrlOption = "",
    token: ChatTokenOption = "",
    project: ProjectOption = None,
) -> None:
    """Serve all agents over MCP on stdin and stdout. Starts a fleet if none runs."""
    given = context.obj if isinstance(context.obj, Path) else Path()
    status = serve((project or given).absolute(), url, token)
    sys.stderr.flush()
    # What an agent's code left running must not delay the exit, and no thread waits for a line any more.
    os._exit(status)


def serve(root: Path, url: str, token: str) -> int:
    """Serve until stdin ends or a signal comes, and return the exit status.

    From here on stdout carries JSON-RPC.
    """
    import asyncio

    from pallas.client.stdio_bridge.stdio_wire import StdioWire

    if os.isatty(0):
        _tell(
            "speaks JSON-RPC on stdin and stdout: put it into an MCP client's configuration; Ctrl-D ends it"
        )
    wire = StdioWire()  # Before any code of the project is imported: it may print.
    from pallas.client import URL_VARIABLE, token_of
    from pallas.config import ConfigError, export_env, load_project
    from pallas.model import Fault

    url = url.strip() or os.environ.get(URL_VARIABLE, "").strip()
    loaded: Project | None = None
    try:
        if not url:
            export_env(root)
            loaded = load_project(root)
        token = token_of(token)
    except (ConfigError, Fault) as error:
        print(f"pallas bridge: {error}", file=sys.stderr)
        return UNUSABLE

    from pallas.fleet.child_processes import children, end_children
    from pallas.telemetry.log import close_logging

    others = children()
    _log(loaded, token)
    try:
        return asyncio.run(_serve(wire, loaded, url, token, others))
    finally:
        end_children(but=others)
        close_logging()


async def _serve(
    wire: object, project: "Project | None", url: str, token: str, others: frozenset[int]
) -> int:
    import asyncio

    from pallas.client.stdio_bridge.bridge_relay import Relay
    from pallas.client.stdio_bridge.bridge_target import BridgeTarget, provide_fleet
    from pallas.client.stdio_bridge.stdio_wire import StdioWire

    assert isinstance(wire, StdioWire)
    stop = asyncio.Event()
    _hear_signals(stop)
    target = BridgeTarget(token)
    fleet = asyncio.create_task(provide_fleet(target, project, url, stop, tell=_tell), name="fleet")
    try:
        await Relay(wire, target).run(stop, lambda: _end_soon(others))
    finally:
        stop.set()
        await asyncio.wait({fleet})  # It bounds its own end.
        await wire.end()
    return UNUSABLE if target.fault is not None else 0


def _end_soon(others: frozenset[int]) -> None:
    """End this process and its children after a short delay, unless it has ended by itself.

    A client waits about two seconds, and an agent's code may ignore its cancellation.
    """
    from pallas.fleet.child_processes import end_children

    def end() -> None:
        end_children(but=others)
        os._exit(0)

    timer = threading.Timer(_END_S, end)
    timer.daemon = True
    timer.start()


def _hear_signals(stop: "asyncio.Event") -> None:
    """Set ``stop`` on the first signal; a second one ends the process at once."""
    import asyncio

    def on_signal(number: int) -> None:
        if not stop.is_set():
            stop.set()
            return
        from pallas.fleet.child_processes import end_children

        end_children()
        os._exit(_SIGNALLED + number)

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)


def _tell(text: str) -> None:
    """Write a line to stderr, which the client that started us usually logs."""
    with contextlib.suppress(OSError, ValueError):
        print(f"pallas bridge: {text}", file=sys.stderr, flush=True)


def _log(project: "Project | None", token: str) -> None:
    from pallas.model.redaction import redact
    from pallas.telemetry.log import redact_project, setup_logging

    if project is None:
        setup_logging(stderr=False)
    else:
        setup_logging(project.log_level, stderr=False, project=project.root)
        redact_project(project)
    if token:
        redact(token)
