"""`pallas dev --web` in a process of its own, a browser to open it in, and what a tab sees."""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from . import pallas_process
from .waiting import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

# xterm.js draws on a canvas; its buffer is the text that stands there. Whoever makes a terminal gives it a
# field of this name first: that is how the page's own one is found.
_FIND_TERMINAL = """
Object.defineProperty(Object.prototype, "_core", {
  configurable: true,
  set(core) {
    if (!window.seen && typeof this.write === "function") window.seen = this;
    Object.defineProperty(this, "_core", {value: core, writable: true, configurable: true});
  },
});
"""
_READ_SCREEN = """(() => {
  const buffer = window.seen && window.seen.buffer.active;
  if (!buffer) return "";
  const lines = [];
  for (let row = 0; row < window.seen.rows; row++) {
    const line = buffer.getLine(buffer.viewportY + row);
    lines.push(line ? line.translateToString(true) : "");
  }
  return lines.join("\\n");
})()"""


@asynccontextmanager
async def web_command(
    *arguments: str, environment: Mapping[str, str], forks: bool | None = None
) -> AsyncIterator["WebCommand"]:
    """`pallas dev ... --web` on a free port, stopped by a signal at the end; ``forks`` as of ``start``."""
    process = await pallas_process.start_async(
        "dev",
        *arguments,
        "--web",
        "--port",
        "0",
        forks=forks,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    command = WebCommand(process)
    reading = asyncio.create_task(command.read())
    try:
        await until(lambda: command.addresses or process.returncode is not None, timeout=60)
        assert command.addresses, command.said
        yield command
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(30):
            await process.wait()
            await reading


class WebCommand:
    """What it says, and the addresses that it printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said = ""

    @property
    def addresses(self) -> list[str]:
        """Each address to open, the newest last."""
        return [word for word in self.said.split() if word.startswith("http") and "?key=" in word]

    async def read(self) -> None:
        """Until it ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.said += line.decode()


class Page:
    """One page of the browser, driven over its debugging protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, session: str) -> None:
        self._socket = socket
        self._session = session
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self.problems: list[str] = []
        """What the page's console complained of."""

    async def listen(self) -> None:
        """Sort what the browser sends, until it goes."""
        async for message in self._socket:
            document = json.loads(message.data)
            if (waiting := self._answers.pop(document.get("id", 0), None)) is not None:
                waiting.set_result(document)
            elif document.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(json.dumps(document["params"])[:600])

    async def call(self, method: str, **parameters: Any) -> Any:
        """One command of the protocol."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        command = {"id": self._number, "method": method, "params": parameters}
        await self._socket.send_json(command | ({"sessionId": self._session} if self._session else {}))
        async with asyncio.timeout(30):
            document = await answer
        assert "error" not in document, document
        return document["result"]

    async def goto(self, url: str) -> None:
        """Open an address."""
        await self.call("Page.navigate", url=url)

    async def evaluate(self, script: str) -> Any:
        """What a script in the page gives."""
        result = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return result["result"].get("value")

    async def screen(self) -> str:
        """What stands in the terminal of the page."""
        return str(await self.evaluate(_READ_SCREEN) or "")

    async def until(self, *texts: str, timeout: float = 60) -> str:
        """The screen as soon as it shows all the texts."""
        screen = ""
        try:
            async with asyncio.timeout(timeout):
                while not screen or not all(text in screen for text in texts):
                    await asyncio.sleep(0.1)
                    screen = await self.screen()
        except TimeoutError:
            raise AssertionError(f"{texts} not on the page:\n{screen}\n{self.problems}") from None
        return screen

    async def until_true(self, script: str, timeout: float = 30) -> None:
        """Until a script in the page gives something true."""
        async with asyncio.timeout(timeout):
            while not await self.evaluate(script):  # noqa: ASYNC110 - the page has no event for us
                await asyncio.sleep(0.05)

    async def type(self, text: str) -> None:
        """Press the keys of a text, one after the other."""
        for letter in text:
            await self._press(key=letter, text=letter)

    async def enter(self) -> None:
        """Press enter."""
        await self._press(key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)

    async def control(self, letter: str) -> None:
        """Press a letter with control."""
        code = ord(letter.upper())
        await self._press(key=letter, code=f"Key{letter.upper()}", modifiers=2, windowsVirtualKeyCode=code)

    async def _press(self, **key: Any) -> None:
        await self.call("Input.dispatchKeyEvent", type="keyDown", **key)
        await self.call(
            "Input.dispatchKeyEvent", type="keyUp", **{k: v for k, v in key.items() if k != "text"}
        )


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """A new page in a headless browser of its own."""
    with _chromium(folder):
        place = folder / "DevToolsActivePort"
        await until(lambda: place.exists() and place.read_text().count("\n") >= 1, timeout=60)
        port, path = place.read_text().split("\n")[:2]
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(f"http://127.0.0.1:{port}{path}", max_msg_size=0) as socket,
        ):
            page = Page(socket, "")
            listening = asyncio.create_task(page.listen())
            made = await page.call("Target.createTarget", url="about:blank")
            attached = await page.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
            page._session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log"):
                await page.call(f"{domain}.enable")
            await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
            await page.call("Page.addScriptToEvaluateOnNewDocument", source=_FIND_TERMINAL)
            try:
                yield page
            finally:
                listening.cancel()


@contextmanager
def _chromium(folder: Path) -> Iterator[None]:
    """The browser's process, with its profile in ``folder``."""
    assert CHROMIUM is not None
    # It leaves files in both. In the test's folder the path of its socket would be too long.
    with tempfile.TemporaryDirectory(prefix="pallas-browser-", ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            [
                CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--no-first-run", "--disable-background-networking", "--disable-component-update",
                "--disable-sync", "--window-size=1280,900", "--remote-debugging-port=0",
                f"--user-data-dir={folder}", "about:blank",
            ],
            env={**os.environ, "HOME": home, "TMPDIR": home},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(60)
