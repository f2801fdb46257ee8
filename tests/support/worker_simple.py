"""A worker of the simple dialect that does as the message says; run as a program.

Messages it knows, else it answers what it was told and the how-manieth prompt of its session that is:

- ``hold``: waits until it is cancelled; ``stubborn``: does not let itself be cancelled
- ``meet``: waits until another prompt of that kind is there
- ``garbage``: a line that is not JSON before its answer; ``garble``: many of them; ``long``: one of 2 MB
- ``malformed``, ``refuse``, ``lost``: answers that are none, and errors
- ``crash``: stderr and exit status 3; ``vanish``: closes its stdout and goes on
- ``env NAME``: what that is; ``where``: its working directory; ``child``: the pid of a process it started
- ``deaf``: answers and does nothing any more; ``heard``: the methods it was asked, with its sessions
- ``burst``: an answer of many lines' worth

``WORKER_MODE`` holds words: ``nosession`` answers ``session/new`` with nothing, ``silent`` ignores methods
that it does not know, ``stays`` ignores SIGTERM and the end of its stdin, ``banner`` begins with a line of
prose, ``dies`` ends before its first answer. ``WORKER_LOG`` is a file to which each message is added.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

MODE = os.environ.get("WORKER_MODE", "").split()
heard: list[str] = []
turns: Counter[str] = Counter()
cancelled: dict[str, asyncio.Event] = {}
both = asyncio.Barrier(2)
log = os.environ.get("WORKER_LOG")


def say(message: dict[str, Any]) -> None:
    """One message to its stdout."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def note(message: dict[str, Any]) -> None:
    """Add what it was told to its log."""
    with Path(log or "").open("a") as file:
        file.write(json.dumps(message) + "\n")


def start() -> int:
    """The pid of a process that goes on for long."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


async def answer(text: str, session: str) -> dict[str, Any]:
    """What a prompt is answered."""
    word = text.splitlines()[-1].split()[0] if text.strip() else ""
    reason = "end_turn"
    match word:
        case "hold" | "stubborn":
            stop = cancelled[session] = asyncio.Event()
            print("holding", file=sys.stderr, flush=True)
            await stop.wait()
            if word == "stubborn":
                await asyncio.Event().wait()
            text, reason = "so far", "cancelled"
        case "meet":
            async with asyncio.timeout(60):
                await both.wait()
            text = "met"
        case "garbage":
            print("Loading \x1b[31mmodel\x1b[0m weights " + "x" * 200, flush=True)
        case "garble":
            for _ in range(20):
                print("oh no", flush=True)
        case "long":
            print("y" * 2_000_000, flush=True)
        case "malformed":
            return {"words": text}
        case "crash":
            print("the disk is full", file=sys.stderr, flush=True)
            os._exit(3)
        case "vanish":
            os.close(1)
            await asyncio.Event().wait()
        case "env":
            text = os.environ.get(text.split()[1], "unset")
        case "where":
            text = str(Path.cwd())
        case "child":
            text = str(start())
        case "heard":
            text = " ".join(heard)
        case "burst":
            text = "\u2028".join("z" * 1000 for _ in range(100))
        case _:
            turns[session] += 1
            text = f"{turns[session]}:{text}"
    return {
        "text": text,
        "stopReason": reason,
        "requestId": "r1",
        "usage": {"inputTokens": 7, "outputTokens": 2},
    }


async def handle(message: dict[str, Any]) -> None:
    """One request."""
    method, params, number = message["method"], message.get("params", {}), message.get("id")
    session = params.get("sessionId", "")
    heard.append(method + (f":{session}" if session else ""))
    if log:
        note(message)
    result: Any = {}
    match method:
        case "session/new":
            result = {} if "nosession" in MODE else {"sessionId": f"s{sum(h == method for h in heard)}"}
        case "session/prompt":
            text = params["input"]
            if text.startswith("refuse"):
                error = {"code": -32002, "message": "no \x1b[2Jmore", "data": {"retryable": True}}
                say({"id": number, "error": error})
                return
            if text.startswith("lost"):
                say({"id": number, "error": {"code": -32002, "message": f"Session not found: {session}"}})
                return
            result = await answer(text, session)
        case "session/cancel":
            if session in cancelled:
                cancelled[session].set()
        case "session/close":
            pass
        case _:
            if "silent" not in MODE:
                say({"id": number, "error": {"code": -32601, "message": "Method not found"}})
            return
    say({"id": number, "result": result})
    if params.get("input") == "deaf":
        time.sleep(600)  # noqa: ASYNC251 - that is the point


async def main() -> None:
    """Answer until its stdin ends."""
    if "banner" in MODE:
        print("Welcome to the worker!", flush=True)
    if "dies" in MODE:
        sys.exit("no licence")
    if "stays" in MODE:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stdin = asyncio.StreamReader(limit=8 * 1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()
    while line := await stdin.readline():
        tasks.add(task := asyncio.create_task(handle(json.loads(line))))
        task.add_done_callback(tasks.discard)
        await asyncio.sleep(0)
    if "stays" in MODE:
        await asyncio.Event().wait()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
