"""A run of pytest in a project, as its author would start it."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path


async def pytest_in(root: Path, *words: str) -> tuple[int, str]:
    """The exit status of `pytest` in a folder, and what it printed."""
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words)
    process = await asyncio.create_subprocess_exec(*command, cwd=root, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(180):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.wait({asyncio.create_task(process.wait())}, timeout=60)
    assert process.returncode is not None
    return process.returncode, out.decode()
