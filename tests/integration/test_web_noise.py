"""In a browser's workbench the screen is a stream of packets on descriptor 1: a stray byte would end it."""

import asyncio
import json
import os
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from support.waiting import until
from unit.test_tui_isolate_launch import MAIN, NOISE, PRELUDE, ROOT


class Tab:
    """Reads packets as the web server does, and nothing but packets."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self.process = process
        self.drawn = b""
        self.meta: list[str] = []
        self.stray = b""
        self.errors = b""
        self._folder = folder

    async def read(self) -> None:
        """Until the workbench ends; whatever is no packet is kept as stray."""
        stdout = self.process.stdout
        assert stdout is not None
        if (first := await stdout.readline()) != b"__GANGLION__\n":
            self.stray = first + await stdout.read()
            return
        while kind := await stdout.read(1):
            if kind not in (b"D", b"M", b"P"):
                self.stray = kind + await stdout.read()
                return
            payload = await stdout.readexactly(int.from_bytes(await stdout.readexactly(4), "big"))
            if kind == b"D":
                self.drawn += payload
            elif kind == b"M":
                self.meta.append(json.loads(payload)["type"])

    async def listen(self) -> None:
        """Its error stream."""
        assert self.process.stderr is not None
        self.errors = await self.process.stderr.read()

    def press(self, keys: bytes) -> None:
        """Type, in a packet."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"D" + len(keys).to_bytes(4, "big") + keys)

    def log(self) -> str:
        """The log so far."""
        path = self._folder / "pallas.log"
        return path.read_text() if path.exists() else ""


@asynccontextmanager
async def tab(tmp_path: Path, body: str) -> AsyncIterator[Tab]:
    script = tmp_path / "script.py"
    script.write_text(PRELUDE + textwrap.dedent(body) + MAIN)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        "PALLAS_LOG_FILE": str(tmp_path / "pallas.log"),
        "PALLAS_WORKBENCH_CONFIG": str(tmp_path / "workbench.yaml"),
        "PALLAS_WEB": "1",
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
        "TEXTUAL_COLOR_SYSTEM": "truecolor",
        "COLUMNS": "120",
        "ROWS": "40",
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(script), str(tmp_path / "stopped"),
        stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True,
    )  # fmt: skip
    opened = Tab(process, tmp_path)
    reading = {asyncio.create_task(opened.read()), asyncio.create_task(opened.listen())}
    try:
        yield opened
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await asyncio.wait(reading, timeout=60)


@pytest.mark.slow
async def test_twelve_kinds_of_noise_leave_no_byte_among_the_packets(tmp_path: Path) -> None:
    # PR-33
    async with tab(tmp_path, NOISE) as opened:
        await until(lambda: b":24204" in opened.drawn, timeout=60)
        await until(
            lambda: "noise that ends it" in opened.log() and "noise traceback" in opened.log(), timeout=60
        )
        before = len(opened.drawn)
        opened.press(b"\x1bOQ")  # F2: the screen still answers
        await until(lambda: b"details" in opened.drawn[before:], timeout=60)
        opened.press(b"\x11")  # ctrl+q
        await until(lambda: opened.meta == ["exit"], timeout=60)
        async with asyncio.timeout(30):
            assert await opened.process.wait() == 0
        await until(lambda: opened.process.stdout is not None and opened.process.stdout.at_eof())
        assert opened.stray == b""
        assert b"noise" not in opened.drawn
        assert b"noise" not in opened.errors
        said = opened.log()
    for message in (
        "noise fd one", "noise fd two", "noise of C", "noise child out", "noise child err",
        "noise child given stderr", "noise handler made early", "noise print", "noise stderr",
        "noise warning", "noise last resort", "noise traceback",
    ):  # fmt: skip
        assert message in said, message


@pytest.mark.slow
async def test_a_workbench_whose_server_is_killed_ends_by_itself(tmp_path: Path) -> None:
    # The server is the parent; here a shell stands in for it, and dies without a word to its child.
    script = tmp_path / "script.py"
    script.write_text(PRELUDE + MAIN)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests"))),
        "PALLAS_LOG_FILE": str(tmp_path / "pallas.log"),
        "PALLAS_WORKBENCH_CONFIG": str(tmp_path / "workbench.yaml"),
        "PALLAS_WEB": "1",
        "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
        "COLUMNS": "120",
        "ROWS": "40",
    }
    inner = f"{sys.executable} {script} {tmp_path / 'stopped'} <&3 >{tmp_path / 'drawn'} 2>&1 & wait"
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", f"exec 3<&0; {inner}", stdin=asyncio.subprocess.PIPE, env=environment
    )
    drawn, stopped = tmp_path / "drawn", tmp_path / "stopped"
    try:
        await until(lambda: b":24204" in drawn.read_bytes(), timeout=60)
        (workbench,) = psutil.Process(shell.pid).children()
    finally:
        shell.kill()
        await shell.wait()
    try:
        await until(stopped.exists, timeout=30)
        await until(lambda: not workbench.is_running(), timeout=30)
    finally:
        if workbench.is_running():
            workbench.kill()
