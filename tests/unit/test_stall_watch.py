"""The thread that notices when an event loop makes no progress."""

import ast
import asyncio
import threading
import traceback
from pathlib import Path

import pallas
from pallas.telemetry.stall_watch import Stall, StallWatch


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
