"""One browser tab: a workbench in a process of its own, which ends with the tab."""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Final

from textual_serve.app_service import AppService

from pallas.deadlines import cancel_and_wait
from pallas.safe_text import one_line
from pallas.surfaces.control.control_tokens import FULL_VARIABLE, VARIABLES

from ..browser import VARIABLE

log = logging.getLogger(__name__)

WIDTHS: Final = (20, 500)
HEIGHTS: Final = (5, 200)
GRACE: Final = 4.0
"""Seconds that a workbench has to end by itself."""
_STDERR: Final = 8_192


def clamped(value: object, least: int, most: int, default: int) -> int:
    """A size that a browser sent, as a number that a terminal may have."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return default
    return int(max(least, min(most, value)))


class WebSession(AppService):
    """`pallas dev --attach` for one tab. The token goes by the environment, never on the command line."""

    def __init__(self, arguments: list[str], token: str, **more: Any) -> None:
        super().__init__("pallas", **more)
        self._arguments = arguments
        self._token = token

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        environment = {
            **os.environ,
            "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
            "TEXTUAL_FPS": "60",
            "TEXTUAL_COLOR_SYSTEM": "truecolor",
            "TERM_PROGRAM": "textual",
            "TERM_PROGRAM_VERSION": version("textual-serve"),
            "COLUMNS": str(width),
            "ROWS": str(height),
            VARIABLE: "1",
        }
        for name in VARIABLES:
            environment.pop(name, None)
        return environment | ({FULL_VARIABLE: self._token} if self._token else {})

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        # Without a shell, and in a group of its own: a Ctrl-C in our terminal is ours to pass on.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pallas.server",
            *self._arguments,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=self._build_environment(width, height),
            start_new_session=True,
        )
        assert process.stdin is not None
        self._process, self._stdin = process, process.stdin
        return process

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Tell the workbench how large the tab is now."""
        await super().set_terminal_size(
            clamped(width, *WIDTHS, default=80), clamped(height, *HEIGHTS, default=24)
        )

    async def run(self) -> None:
        """Pass on the output of the workbench until it ends; then tell the tab."""
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        errors = asyncio.create_task(_last_words(self._process.stderr))
        try:
            await self._relay(self._process.stdout)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            await cancel_and_wait(errors, seconds=1.0)
            if errors.done() and not errors.cancelled() and errors.result():
                log.warning("a workbench in a browser said: %s", errors.result())
            with suppress(Exception):
                await self.remote_close()

    async def _relay(self, stdout: asyncio.StreamReader) -> None:
        if await stdout.readline() != b"__GANGLION__\n":
            log.error("a workbench for a browser did not start")
            return
        while True:
            kind, size = await stdout.readexactly(1), await stdout.readexactly(4)
            payload = await stdout.readexactly(int.from_bytes(size, "big"))
            if kind == b"D":
                await self.on_data(payload)
            elif kind == b"M":
                await self.on_meta(payload)
            elif kind == b"P":
                await self.on_packed(payload)

    async def stop(self) -> None:
        """End the workbench: asked first, then told, then killed. Safe to call twice."""
        process, self._process = self._process, None
        task, self._task = self._task, None
        if process is None:
            return
        await self._download_manager.cancel_app_downloads(app_service_id=self.app_service_id)
        if task is not None:  # there is no tab any more to pass anything on to
            await cancel_and_wait(task, seconds=1.0)
        # What it still draws has to go somewhere, or it would wait for that for ever.
        drain = asyncio.create_task(_drain(process.stdout))
        with suppress(Exception):
            async with asyncio.timeout(1.0):  # its pipe may be full
                await self.send_meta({"type": "quit"})
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await process.wait()
            if process.returncode is not None:
                break
        drain.cancel()


async def _drain(stdout: asyncio.StreamReader | None) -> None:
    while stdout is not None and await stdout.read(65_536):
        pass


async def _last_words(stderr: asyncio.StreamReader) -> str:
    output = b""
    with suppress(asyncio.CancelledError):
        while chunk := await stderr.read(4_096):
            output = (output + chunk)[-_STDERR:]
    return one_line(output.decode("utf-8", "replace"), 400)
