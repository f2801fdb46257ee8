"""However `pallas dev` ends, nothing of it stays: no daemon, and no process that waits for a terminal."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import httpx2
import psutil
import pytest
from support.hostile_servers import call, hostile_project
from support.live import write_project
from support.processes import gone
from support.waiting import until

from pallas.config import load_project

pytestmark = [pytest.mark.pty, pytest.mark.slow]

LONGEST = 120.0
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        with open("daemon.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename("daemon.new", "daemon")
        time.sleep(600)
    os._exit(0)
os.wait()
text("done")
"""


class Desk:
    """`pallas dev` on a terminal that a thread reads while ``reads`` is set."""

    def __init__(self, root: Path, log: Path) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        environment = {**os.environ, "TERM": "xterm-256color", "PALLAS_LOG_FILE": str(log)}
        self.process = psutil.Popen(
            [sys.executable, "-m", "pallas.server", "dev", str(root)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        self.reads = Event()
        self.reads.set()
        self._waits = 0
        self._over = Event()
        self.drawn = bytearray()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()
        self.registry = f"http://127.0.0.1:{load_project(root).registry_port}"

    def _read(self) -> None:
        while not self._over.is_set():
            if self.reads.wait(0.1) and select.select([self.master], [], [], 0.1)[0]:  # subject: repeated
                with suppress(OSError):
                    self.drawn += os.read(self.master, 65_536)

    def is_ready(self) -> bool:
        with suppress(httpx2.HTTPError):
            return httpx2.get(f"{self.registry}/readyz", timeout=60).status_code == 200
        return False

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def is_stalled(self) -> bool:
        """Ask for a new picture; whether none fits into the terminal any more, for a while."""
        self.press(b"\x0c")
        thread = psutil.Process(self.process.pid)
        waiting = [Path(f"/proc/{thread.pid}/task/{each.id}/wchan").read_text() for each in thread.threads()]
        self._waits = self._waits + 1 if "wait_woken" in waiting else 0
        return self._waits > 50

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        os.close(self.master)
        os.close(self.slave)


@contextmanager
def desk_on(root: Path, log: Path) -> Iterator[Desk]:
    desk = Desk(root, log)
    try:
        yield desk
    finally:
        if desk.process.poll() is None:
            desk.process.kill()
        desk.process.wait()
        desk.close()


@pytest.mark.parametrize("how", ["ctrl+q", "SIGTERM", "SIGHUP"])
async def test_a_daemon_of_a_stdio_server_ends_with_the_workbench(tmp_path: Path, how: str) -> None:
    root = hostile_project(tmp_path / "p", {"forks": {"do": DAEMON}})
    with desk_on(root, tmp_path / "pallas.log") as desk:
        await until(desk.is_ready, timeout=LONGEST)
        async with httpx2.AsyncClient(timeout=LONGEST) as caller:
            path = f"{desk.registry}/api/v1/agents/victim/chat"
            answer = await caller.post(path, json={"message": call("forks")})
        assert "done" in answer.text
        daemon = int(await until((root / "daemon").read_text))
        assert not gone(daemon)
        if how == "ctrl+q":
            desk.press(b"\x11")
        else:
            desk.process.send_signal(signal.Signals[how])
        await until(lambda: desk.process.poll() is not None)
        assert desk.process.returncode == 0
        await until(lambda: gone(daemon))


@pytest.mark.parametrize("signals", [1, 2])
async def test_a_terminal_that_is_not_read_does_not_keep_the_workbench(tmp_path: Path, signals: int) -> None:
    root = write_project(tmp_path / "p", {"one": None})
    with desk_on(root, tmp_path / "pallas.log") as desk:
        await until(desk.is_ready, timeout=LONGEST)
        await until(lambda: b"one" in desk.drawn)
        desk.reads.clear()
        await until(desk.is_stalled)
        desk.process.send_signal(signal.SIGTERM)
        if signals > 1:
            await until(lambda: desk.process.poll() is not None or desk.process.send_signal(signal.SIGTERM))
        await until(lambda: desk.process.poll() is not None)
        assert desk.process.returncode in ((0,) if signals == 1 else (143, -signal.SIGTERM))
        if (
            desk.process.returncode != -signal.SIGTERM
        ):  # else the system has ended it, in the middle of a write
            desk.reads.set()
            ended, began = b"\x1b[?1049l", b"\x1b[?1049h"  # the screen of its own
            await until(lambda: desk.drawn.rfind(ended) > desk.drawn.rfind(began))
        if signals == 1:
            assert termios.tcgetattr(desk.slave) == desk.modes
            assert "fleet test: stopped" in (tmp_path / "pallas.log").read_text()
