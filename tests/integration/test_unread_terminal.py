"""A served fleet whose terminal is not read, as after ctrl+s: it serves, and it ends when it is asked to."""

import asyncio
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx2
import pytest
from support import pallas_process
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.processes import gone
from support.served import Served, text_of
from support.turnstile import turnstile
from support.typed import typed_project
from support.waiting import until

pytestmark = pytest.mark.usefixtures("forked_children")


@contextmanager
def full_terminal() -> Iterator[int]:
    """A terminal that takes not one character more."""
    master, slave = pty.openpty()
    try:
        filling = os.open(os.ttyname(slave), os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
        for size in (4096, 1):
            with suppress(BlockingIOError):
                while True:
                    os.write(filling, b"-" * size)
        os.close(filling)
        yield slave
    finally:
        os.close(slave)
        os.close(master)


async def is_ready(fleet: Served) -> bool:
    return (await fleet.get("/readyz")).status_code == 200


@contextmanager
def unread(root: Path, **environment: str) -> Iterator[Served]:
    """`pallas --serve` on a full terminal."""
    log = root.parent / "pallas.log"
    with full_terminal() as terminal:
        process = pallas_process.start(
            "--serve",
            "--project",
            str(root),
            env={**os.environ, "PALLAS_LOG_FILE": str(log), **environment},
            stdin=subprocess.DEVNULL,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        fleet = Served(root, log, process)
        try:
            yield fleet
        finally:
            below = fleet.children() if process.poll() is None else []
            process.kill()
            process.wait()
            for pid in below:
                if not gone(pid):
                    os.kill(pid, signal.SIGKILL)


PRINTS = """
async def answer(request):
    print("-" * 4096)
    return "printed"
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("logs", ["0", "1"])
async def test_it_serves_and_ends_in_order(tmp_path: Path, workers: int, logs: str) -> None:
    top = {"bind": "127.0.0.1", "workers": workers}
    entries = {"one": {"kind": "handler", "handler": "desk:answer"}}
    with unread(typed_project(tmp_path / "p", PRINTS, entries, top=top), PALLAS_LOG_STDERR=logs) as fleet:
        await until(partial(is_ready, fleet), timeout=120)
        async with fleet.client("one", ERAS[0]) as caller:
            for _ in range(3):
                assert text_of(await caller.call_tool("send_message", {"message": "hi"})) == "printed"
        below = fleet.children()
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
        await until(lambda: all(map(gone, below)))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
async def test_a_second_signal_ends_it_at_once(tmp_path: Path, workers: int) -> None:
    async with turnstile() as stile:
        root = offline_project(
            tmp_path / "p",
            {"one": agent_module("one", ("stile",))},
            "rules:\n  - when: {last: user}\n    call: [{tool: stile__go, arguments: {who: one}}]\n",
            top={"bind": "127.0.0.1", "workers": workers, "drain_timeout": 1_000},
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        )
        with unread(root) as fleet:
            await until(partial(is_ready, fleet), timeout=120)
            async with httpx2.AsyncClient(timeout=120) as caller:
                path = f"{fleet.registry}/api/v1/agents/one/chat"
                call = asyncio.create_task(caller.post(path, json={"message": "hi"}))
                await until(lambda: stile.arrived == ["one"])
                fleet.send(signal.SIGTERM)
                await fleet.logs(": draining")
                fleet.send(signal.SIGTERM)
                assert await fleet.ended() == 143
                await asyncio.wait({call})
                assert call.exception() is not None
