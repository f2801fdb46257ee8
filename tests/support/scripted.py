"""The offline model on a free port, following a script that a test writes."""

import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pallas.scripted.script_file import Script, load_script
from pallas.scripted.scripted_server import RequestRecord, record_of, scripted_app
from pallas.surfaces.listener import Listener, bind


@dataclass(frozen=True, slots=True)
class Model:
    """A running model: ``url`` ends in ``/v1``, ``record`` is what it was asked."""

    url: str
    record: RequestRecord


def write_script(folder: Path, text: str) -> Path:
    """``text``, indentation taken off, as ``model.yaml`` in ``folder``."""
    path = folder / "model.yaml"
    path.write_text(textwrap.dedent(text), "utf-8")
    return path


def script(folder: Path, text: str) -> Script:
    """``text`` as a script. Raises ConfigError."""
    return load_script(write_script(folder, text))


@asynccontextmanager
async def model(folder: Path, text: str) -> AsyncIterator[Model]:
    """A model that follows ``text``, on a real socket in this loop."""
    async with served(script(folder, text)) as running:
        yield running


@asynccontextmanager
async def served(loaded: Script) -> AsyncIterator[Model]:
    """A model that follows a script that is read already."""
    app = scripted_app(loaded)
    listener = Listener(app, bind("127.0.0.1", 0, "scripted model"))
    await listener.start()
    try:
        yield Model(f"http://127.0.0.1:{listener.port}/v1", record_of(app))
    finally:
        await listener.stop()
