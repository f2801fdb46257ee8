"""What happens to the fleet while it works."""

import asyncio
import os
import random
import re
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from .account import Account
from .control import FleetControl
from .project import AGENTS

# Seconds between two things that happen.
PAUSE: Final = (0.1, 0.8)


class Harm:
    """Saves files, kills what can be killed, cancels and restarts, by chance from a seed."""

    def __init__(
        self, root: Path, control: FleetControl, account: Account, fleet: psutil.Process, seed: int
    ) -> None:
        self._root, self._control, self._account, self._fleet = root, control, account, fleet
        self._chance = random.Random(seed)
        self._number = 0
        self._kinds: tuple[tuple[str, int, Callable[[], Awaitable[bool]]], ...] = (
            ("saved", 6, self._save),
            ("saved with a mistake", 2, self._break),
            ("agents.yaml saved", 2, self._retitle),
            ("cancelled", 6, self._cancel),
            ("stdio child killed", 2, self._kill_stdio),
            ("agent's process killed", 2, self._kill_alone),
            ("server killed", 1, self._kill_bridge),
            ("restarted", 1, self._restart),
            ("rolled back", 1, self._roll_back),
            ("connection left open", 2, self._leave_open),
        )

    async def until(self, over: asyncio.Event) -> None:
        """Do something every now and then until ``over``; then repair what was broken."""
        names = [name for name, _, _ in self._kinds]
        weights = [weight for _, weight, _ in self._kinds]
        work = {name: each for name, _, each in self._kinds}
        while not over.is_set():
            (name,) = self._chance.choices(names, weights)
            if await work[name]():
                self._account.done[name] += 1
            with suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(*PAUSE)):
                    await over.wait()
        for agent in AGENTS:
            await self._write(agent, mistake=False)

    async def _save(self) -> bool:
        await self._write(self._chance.choice(AGENTS), mistake=False)
        return True

    async def _break(self) -> bool:
        agent = self._chance.choice(AGENTS)
        await self._write(agent, mistake=True)
        await asyncio.sleep(0.3)
        await self._write(agent, mistake=False)
        return True

    async def _write(self, agent: str, *, mistake: bool) -> None:
        self._number += 1
        path = self._root / "agents" / f"{agent}.py"
        text = re.sub(r"version \d+", f"version {self._number}", await asyncio.to_thread(path.read_text))
        text = text.replace("this is no Python\n", "") + ("this is no Python\n" if mistake else "")
        other = path.with_suffix(".py.new")
        await asyncio.to_thread(other.write_text, text)
        other.replace(path)

    async def _retitle(self) -> bool:
        self._number += 1
        path = self._root / "agents.yaml"
        text = await asyncio.to_thread(path.read_text)
        text = re.sub(r"\n# saved \d+", "", text).rstrip("\n") + f"\n# saved {self._number}\n"
        await asyncio.to_thread(path.write_text, text)
        return True

    async def _cancel(self) -> bool:
        runs = list(self._account.open_runs)
        return bool(runs) and await self._control.ask(f"/runs/{self._chance.choice(runs)}/cancel")

    async def _kill_stdio(self) -> bool:
        return self._kill(lambda words: "echo.py" in words and "stdio_bridge" not in words)

    async def _kill_alone(self) -> bool:
        snapshot = await self._control.snapshot()
        pids = [agent["pid"] for agent in snapshot["agents"] if agent.get("pid")]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    async def _kill_bridge(self) -> bool:
        return self._kill(lambda words: "stdio_bridge" in words)

    def _kill(self, fits: Callable[[str], bool]) -> bool:
        found = []
        for child in self._fleet.children(recursive=True):
            with suppress(psutil.Error):
                if fits(" ".join(child.cmdline())):
                    found.append(child)
        if not found:
            return False
        with suppress(psutil.Error):
            self._chance.choice(found).kill()
        return True

    async def _restart(self) -> bool:
        return await self._control.ask(f"/agents/{self._chance.choice(AGENTS)}/restart")

    async def _roll_back(self) -> bool:
        return await self._control.ask(f"/agents/{self._chance.choice(AGENTS)}/rollback")

    async def _leave_open(self) -> bool:
        snapshot = await self._control.snapshot()
        port = self._chance.choice(snapshot["agents"])["port"]
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
            await writer.drain()
            asyncio.get_running_loop().call_later(5, writer.close)
        return True
