"""The thread that notices when an event loop makes no progress."""

import ast
import asyncio
import os
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import psutil
import pytest
from support.waiting import until

import pallas
from pallas.telemetry.stall_watch import Stall, StallWatch

# A process that watches its loop; BODY is what runs in that.
WATCHED = """
import asyncio, os, sys, threading
from pallas.processes.event_loop import new_runner
from pallas.telemetry.stall_watch import StallWatch

noticed = threading.Event()
reports = []

def report(stall):
    reports.append(stall)
    noticed.set()
    stall.wait()

async def main():
    watch = StallWatch(float(sys.argv[1]), report)
    watch.start()
    BODY

with new_runner() as runner:
    runner.run(main())
"""
CLOSES_ITS_DESCRIPTORS = """
    os.closerange(3, 256)
    noticed.wait(60)
    print(len(reports), flush=True)
    os._exit(0)
"""
IS_STOPPED = """
    print("runs", flush=True)
    is_asked = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, is_asked.set)
    await is_asked.wait()
    print(len(reports), noticed.wait(60), len(reports), flush=True)
    os._exit(0)
"""


@contextmanager
def watched(limit_s: float, body: str) -> Iterator[subprocess.Popen[str]]:
    source = WATCHED.replace("    BODY", body)
    with subprocess.Popen(
        [sys.executable, "-c", source, str(limit_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_what_the_loop_executes_is_reported_while_it_is_held_up() -> None:
    noticed, stacks, over = threading.Event(), list[str](), asyncio.Event()
    loop = asyncio.get_running_loop()

    def report(stall: Stall) -> None:
        stacks.append("".join(traceback.format_stack(stall.frame)))
        noticed.set()
        assert stall.wait() >= 0.05
        loop.call_soon_threadsafe(over.set)

    watch = StallWatch(0.05, report)
    watch.start()
    try:
        assert noticed.wait(60)  # this holds the loop up until it was noticed
        async with asyncio.timeout(60):
            await over.wait()
        assert "in test_what_the_loop_executes_is_reported_while_it_is_held_up" in stacks[0]
    finally:
        watch.stop()


def test_a_loop_whose_descriptors_were_closed_is_reported_and_its_process_lives_on() -> None:
    """uvloop ends its process when another thread tries to wake a loop whose descriptor is closed."""
    with watched(0.05, CLOSES_ITS_DESCRIPTORS) as process:
        assert process.communicate(timeout=90)[0] == "1\n"
        assert process.returncode == 0


@pytest.mark.slow
async def test_a_process_that_was_stopped_is_not_blamed_for_the_pause_and_watched_on() -> None:
    with watched(1, IS_STOPPED) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == "runs\n"
        os.kill(process.pid, signal.SIGSTOP)
        await until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
        stopped = monotonic()
        await until(lambda: monotonic() - stopped > 3)
        os.kill(process.pid, signal.SIGCONT)
        output, _ = await asyncio.to_thread(process.communicate, "go on\n", 90)
        assert output == "0 True 1\n"


def test_a_loop_that_ended_is_not_reported() -> None:
    reports, others = list[Stall](), set(threading.enumerate())

    async def watch() -> None:
        StallWatch(0.05, reports.append).start()

    asyncio.run(watch())
    for thread in set(threading.enumerate()) - others:
        thread.join(60)
        assert not thread.is_alive()
    assert reports == []


def test_no_frames_are_read_beside_threads_that_go_on() -> None:
    """A C thread reads them while they change, and a process that only blocked its loop ends by SIGSEGV."""
    endless = [
        f"{file.name}:{node.lineno}"
        for file in sorted(Path(pallas.__path__[0]).rglob("*.py"))
        if "dump_traceback_later" in (text := file.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "dump_traceback_later"
        and not any(each.arg == "exit" for each in node.keywords)
    ]
    assert endless == []


class Held:
    """Something that blocking code refers to."""


async def test_what_blocking_code_refers_to_is_let_go_of_afterwards() -> None:
    noticed = threading.Event()
    watch = StallWatch(0.05, lambda stall: noticed.set())

    def block() -> weakref.ref[Held]:
        held = Held()
        assert noticed.wait(60)
        return weakref.ref(held)

    watch.start()
    try:
        held = block()
        await until(lambda: held() is None)
    finally:
        watch.stop()
