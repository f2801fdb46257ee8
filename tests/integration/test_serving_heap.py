"""What a served fleet spares its callers: collections of garbage that look through the whole program."""

import asyncio
import gc
import os
import signal
import sys
from pathlib import Path

import pytest
from support.live import agent_module, write_project
from support.waiting import until

# Tells in a file how many objects the collector leaves alone, as soon as there are any.
WATCH = """
import gc
import threading
import time
from pathlib import Path

Path("starting").write_text(str(gc.get_threshold()[0]))


def watch():
    while not (count := gc.get_freeze_count()):
        time.sleep(0.01)
    Path("frozen").write_text(f"{count} {gc.get_threshold()[0]}")


threading.Thread(target=watch, daemon=True).start()
"""


@pytest.mark.slow
async def test_what_a_start_made_is_left_out_of_collections_once_the_fleet_runs(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": WATCH + agent_module("one")}, top={"bind": "127.0.0.1"})
    told = root / "frozen"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pallas.server", "--project", str(root)),
        cwd=root,
        env={**os.environ, "PALLAS_LOG_FILE": str(root / "pallas.log")},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        await until(told.is_file, timeout=60)
        frozen, usual = map(int, (await until(told.read_text)).split())
        # The modules alone are more than this.
        assert frozen > 50_000
        # And the start itself was hardly held up by collections.
        assert int((root / "starting").read_text()) > usual == gc.get_threshold()[0]
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()
