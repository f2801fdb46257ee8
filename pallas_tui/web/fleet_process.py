"""The fleet behind the page, where there is none yet: in a process of its own, with a token for us alone."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from contextlib import suppress
from pathlib import Path
from typing import Final

from pallas.config.load import CERTFILE_VARIABLE, KEYFILE_VARIABLE
from pallas.deadlines import cancel_and_wait
from pallas.model import Fault, FaultType
from pallas.surfaces.control.control_tokens import FULL_VARIABLE, VARIABLES, make_token

START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 8.0


class FleetProcess:
    """`pallas dev DIR --serve`, started and stopped by us. What it says goes to our terminal.

    ``faults`` is a file with faults to be injected, by default ``faults.yaml`` of the project.
    """

    def __init__(self, root: Path, token: str = "", faults: Path | None = None) -> None:
        self.token = token or make_token()
        self._root = root
        self._faults = ("--faults", str(faults)) if faults is not None else ()
        self._process: Process | None = None

    async def start(self, origin: str) -> None:
        """Start it and wait until its control API answers at ``origin``.

        Raises Fault CONFIG when it ends instead, having said why itself, and TIMEOUT.
        """
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        environment |= {FULL_VARIABLE: self.token, CERTFILE_VARIABLE: "", KEYFILE_VARIABLE: ""}
        # In a group of its own: a Ctrl-C in our terminal is ours to pass on, once.
        self._process = await asyncio.create_subprocess_exec(
            *_ended_with_parent(), sys.executable, "-m", "pallas.server", "dev", str(self._root), "--serve",
            "--allow-faults", *self._faults,
            env=environment, stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        ended = asyncio.create_task(self._process.wait())
        answers = asyncio.create_task(_answers(origin, self.token))
        try:
            await asyncio.wait({ended, answers}, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                raise Fault(FaultType.CONFIG, "the fleet did not start")
            if not answers.done():
                raise Fault(FaultType.TIMEOUT, f"the fleet did not answer within {START_TIMEOUT:.0f} s")
            answers.result()
        finally:
            await cancel_and_wait(ended, answers, seconds=1.0)

    async def ended(self) -> None:
        """Until it ends by itself."""
        if self._process is not None:
            await self._process.wait()

    async def stop(self) -> None:
        """Stop it; killed when it takes too long."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, number)
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT):
                        await process.wait()


def _ended_with_parent() -> tuple[str, ...]:
    """What goes before a command so that it ends with us, however we end; only Linux can."""
    if sys.platform != "linux":
        return ()
    import pallas.fleet

    program = Path(pallas.fleet.__file__).with_name("parent_death.py")
    return sys.executable, str(program), str(os.getpid())


async def _answers(origin: str, token: str) -> None:
    """Return when the control API at ``origin`` takes the token."""
    from ..remote.control_client import ControlClient, NoControlApi, TokenRejected

    client = ControlClient(origin, token)
    try:
        while True:
            try:
                await client.get("/snapshot")
            except TokenRejected:
                raise Fault(
                    FaultType.CONFIG,
                    f"another fleet answers at {origin}; stop it, or work on it with --web --attach {origin}",
                ) from None
            except (Fault, NoControlApi):
                await asyncio.sleep(0.1)
            else:
                return
    finally:
        await client.close()
