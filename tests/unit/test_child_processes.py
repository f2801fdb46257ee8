"""What a block of agents' code started and let go of ends with the block."""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.processes import gone
from support.waiting import until

from pallas.fleet.child_processes import ending_children
from pallas.processes.child_program import outliving

# Two forks and a session of its own, as daemons do. It writes its number and ignores what ends others.
DAEMON = """
import os, signal, sys, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="daemons are adopted on Linux")


async def test_a_daemon_ends_with_the_block_and_what_held_the_clipboard_goes_on(tmp_path: Path) -> None:
    ours, clipboard = tmp_path / "daemon", tmp_path / "clipboard"
    with ending_children():
        await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON, str(ours))
        await asyncio.create_subprocess_exec(sys.executable, "-c", DAEMON, str(clipboard), env=outliving())
        await until(lambda: ours.exists() and clipboard.exists())
        daemon, holder = int(ours.read_text()), int(clipboard.read_text())
        assert not gone(daemon)
    try:
        await until(lambda: gone(daemon))
        assert not gone(holder)
    finally:
        psutil.Process(holder).kill()
        for each in (daemon, holder):
            with suppress(psutil.NoSuchProcess):
                psutil.Process(each).wait(60)
