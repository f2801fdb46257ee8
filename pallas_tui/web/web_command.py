"""The command itself: a fleet, the page, and the end of both."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from pallas.config import ConfigError, load_project
from pallas.model import Fault
from pallas.surfaces.control.control_tokens import FULL_VARIABLE, is_loopback
from pallas.telemetry.log import close_logging, setup_logging

from ..remote.fleet_address import control_origin
from ..remote.token_source import TokenSource, given_token, hide_tokens, read_project_env
from .fleet_process import FleetProcess
from .web_server import WebServer

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(
    root: Path,
    *,
    attach: str | None,
    token: str,
    token_variable: str,
    host: str,
    port: int,
    faults: Path | None = None,
) -> int:
    """Serve the workbench to browsers until a signal; returns the exit status.

    With ``attach`` on the fleet there, else on that of the project in ``root``, which is started and stopped,
    with the faults in the file ``faults``.
    0 after an orderly stop, 2 for a mistake in the arguments, which a line on stderr names.
    """
    try:
        origin = control_origin(attach) if attach is not None else _origin_of(root)
        if attach is not None:
            read_project_env(origin, root)
        # For a fleet of our own only the token counts that it would have been started with.
        given = (
            given_token(token, token_variable) if attach is not None else os.environ.get(FULL_VARIABLE, "")
        )
    except (Fault, ConfigError) as error:
        return _wrong(str(error))
    hide_tokens(token_variable)
    setup_logging()
    try:
        own = FleetProcess(root, given, faults) if attach is None else None
        return asyncio.run(_serve(root, origin, own, given, host, port))
    except Fault as fault:
        return _wrong(fault.message)
    except OSError as error:
        return _wrong(f"{host}:{port} cannot be used ({error.strerror}); choose another with --port")
    finally:
        close_logging()


async def _serve(
    root: Path, origin: str, fleet: FleetProcess | None, token: str, host: str, port: int
) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    if fleet is not None:
        token = fleet.token
    else:
        # A token of a file stays where it is: each tab finds it by itself, also after the fleet's restart.
        await asyncio.to_thread(TokenSource(origin, token).candidates)
    server = WebServer(
        ["dev", "--attach", origin],
        host=host,
        port=port,
        token=token,
        name=_name(root, origin, fleet is not None),
        tell=_say,
    )
    waiting: set[asyncio.Task[Any]] = {asyncio.create_task(stopped.wait())}
    try:
        if fleet is not None:
            starting = asyncio.create_task(fleet.start(origin))
            await asyncio.wait({starting, *waiting}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                return 0
            starting.result()
            waiting.add(asyncio.create_task(fleet.ended()))
        await server.start()
        if not is_loopback(host):
            _say(
                f"everyone who can read the traffic to {host} can use this page: it is not encrypted; "
                "leave out --host and use `ssh -L` instead"
            )
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return 0
    finally:
        await server.stop()
        if fleet is not None:
            await fleet.stop()
        for task in waiting:
            task.cancel()


def _origin_of(root: Path) -> str:
    """Where the registry of the project will be. Raises ConfigError."""
    project = load_project(root)
    bound = project.bind or "127.0.0.1"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound, bound)
    return f"http://{f'[{host}]' if ':' in host else host}:{project.registry_port}"


def _name(root: Path, origin: str, own: bool) -> str:
    return root.resolve().name if own else origin.partition("://")[2]


def _say(text: str) -> None:
    sys.stdout.write(f"[web] {text}\n")
    sys.stdout.flush()


def _wrong(problem: str) -> int:
    sys.stderr.write(f"pallas dev --web: {problem}\n")
    return 2
