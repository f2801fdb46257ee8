"""A run of pytest in a project, as its author would start it."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from . import pallas_process


async def pytest_in(root: Path, *words: str, truly: bool = False) -> tuple[int, str]:
    """The exit status of `pytest` in a folder, and what it printed.

    It is forked (``pallas_process``) unless it shall be started ``truly``.
    """
    words = ("-q", "-p", "no:cacheprovider", *words)
    streams = {"stdout": PIPE, "stderr": PIPE}
    if truly:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pytest", *words, cwd=root, **streams
        )
    else:  # with plugins that were imported before
        words = ("-W", "ignore::pytest.PytestAssertRewriteWarning", *words)
        process = await pallas_process.start_async(*words, module="pytest", forks=True, cwd=root, **streams)
    try:
        async with asyncio.timeout(180):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.wait({asyncio.create_task(process.wait())}, timeout=60)
    assert process.returncode is not None
    return process.returncode, out.decode()
