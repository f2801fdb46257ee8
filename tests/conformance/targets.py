"""What the suite is run against: a fleet of the sample project, and the fixture."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
from support.projects import copy_sample

from pallas.config import load_project
from pallas.surfaces.listener import Listener, bind

from .fixture import fixture_app
from .suite import ROOT

START_TIMEOUT: Final = 90.0
STOP_TIMEOUT: Final = 15.0


@asynccontextmanager
async def sample_fleet() -> AsyncIterator[Mapping[str, str]]:
    """The agents of the sample project by name, with their URLs, served headless by a process of its own.

    Raises RuntimeError with what it printed when it does not get ready.
    """
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        root = copy_sample(Path(folder), hurry=True)
        project = load_project(root)
        own = {key: value for key, value in os.environ.items() if not key.startswith("PALLAS_")}
        environment = own | {"XDG_STATE_HOME": folder, "PYTHONPATH": str(ROOT / "runtime")}
        with (Path(folder) / "printed").open("wb") as printed:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pallas.server", "--serve", "--project", str(root)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                env=environment,
            )
        try:
            try:
                await _ready(process, project.registry_port)
            except RuntimeError as error:
                raise RuntimeError(f"{error}:\n{(Path(folder) / 'printed').read_text()[-2000:]}") from None
            yield {agent.name: f"http://127.0.0.1:{agent.port}/mcp" for agent in project.agents.values()}
        finally:
            await _end(process)


@asynccontextmanager
async def fixture() -> AsyncIterator[str]:
    """The URL of the fixture, served in this loop by the listener that serves agents."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        async with fixture_app((), Path(folder)) as app:
            listener = Listener(app, bind("127.0.0.1", 0, "the fixture"))
            await listener.start()
            try:
                yield f"http://127.0.0.1:{listener.port}/mcp"
            finally:
                await listener.stop()


async def _ready(process: asyncio.subprocess.Process, port: int) -> None:
    try:
        async with asyncio.timeout(START_TIMEOUT), httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            while process.returncode is None:
                try:
                    if (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200:
                        return
                except httpx2.HTTPError:
                    pass
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise RuntimeError(f"the fleet was not ready within {START_TIMEOUT:.0f} s") from None
    raise RuntimeError(f"the fleet ended with {process.returncode}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
