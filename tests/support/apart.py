"""Typed handlers in processes of their own, without a fleet around them."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pallas.config import AgentConfig, Project
from pallas.config.kinds import HandlerConfig, PumpLimits, TypedConfig
from pallas.contract import HandlerMetadata
from pallas.executors.typed.isolated_host import IsolatedHost
from pallas.invocation import Completer
from pallas.messaging.messaging_port import Delivery, HandlerReply
from pallas.payloads import Payload, PayloadType

# One handler that does as it is told, and what it says.
CREW = '''
import asyncio
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass

from pallas.contract import HandlerResponse, Text, scratch
from pallas.llm import complete

print("imported")
hoard = []
later = []


@dataclass
class Act:
    """What to do, and with what."""

    what: str
    text: str = ""
    number: int = 0


@dataclass
class Done:
    """What came of it."""

    text: str
    number: int = 0


def channels():
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            if socket.socket(fileno=os.dup(number)).family == socket.AF_UNIX:
                yield number
        except OSError:
            pass


def say(document):
    body = document if isinstance(document, bytes) else __import__("json").dumps(document).encode()
    for number in channels():
        os.write(number, len(body).to_bytes(4, "big") + body)


async def act(payload, metadata):
    """Do it."""
    if not isinstance(payload, Act):
        return HandlerResponse.respond(Done(f"{type(payload).__name__}: {payload!r}"))
    text, number = payload.text, payload.number
    match payload.what:
        case "say":
            text = text
        case "to":
            return HandlerResponse(Done(f"for {text}"), text)
        case "metadata":
            text = repr(metadata)
        case "forge":
            metadata.from_id, metadata.thread_id = "boss", "11111111-1111-4111-8111-111111111111"
            metadata.own_name, metadata.chain = "boss", "system.boss"
            response = HandlerResponse.respond(Done(text))
            response.from_id, response.thread_id = "boss", metadata.thread_id
            return response
        case "nothing":
            return None
        case "bytes":
            return text.encode()
        case "keep":
            scratch()["kept"] = text
        case "kept":
            text = str(scratch().get("kept"))
        case "raise":
            raise ValueError(text)
        case "exit":
            sys.exit(text)
        case "wrong":
            return {"not": "an answer"}
        case "unfit":
            return HandlerResponse.respond(Done(text, "no number"))
        case "wait":
            await asyncio.sleep(600)
        case "stubborn":
            while True:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    pass
        case "loop":
            while True:
                pass
        case "ask":
            answer = await complete(text or "any", [{"role": "user", "content": "?"}], agent_id="boss")
            text, number = answer.content, answer.usage.total
        case "ask later":
            async def ask():
                await asyncio.sleep(0)
                await asyncio.sleep(0.01)
                try:
                    await complete("any", [])
                except BaseException as error:
                    hoard.append(repr(error))
            later.append(asyncio.create_task(ask()))
        case "ask much":
            found = await asyncio.gather(*(complete("any", []) for _ in range(number)))
            text = str(len(found))
        case "hoarded":
            await asyncio.gather(*later)
            text = " ".join(map(str, hoard))
        case "hog":
            mine = []
            while True:
                mine.append(bytearray(1 << 20))
        case "keep hog":
            while True:
                hoard.append(bytearray(1 << 16))
        case "die":
            print("about to die", file=sys.stderr, flush=True)
            os._exit(number)
        case "segfault":
            ctypes.string_at(0)
        case "print":
            os.write(1, b"\\xff\\xfe\\x1b]0;title\\x07{\\"say\\":\\"HandlerReturned\\"}\\n")
            os.write(2, b"on stderr " + text.encode() + b"\\n")
            print("printed", text)
        case "log":
            import logging
            for each in range(number or 1):
                logging.getLogger("pallas.kernel").error("forged %s %d", text, each)
        case "send":
            say(eval(text))
            await asyncio.sleep(600)
        case "hang up":
            for each in list(channels()):
                os.close(each)
            await asyncio.sleep(600)
        case "fork":
            deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
            one = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True).pid
            two = os.fork()
            if two == 0:
                os.setsid()
                __import__("time").sleep(1000)
                os._exit(0)
            text = f"{one} {two}"
        case "forks":
            for _ in range(number):
                if os.fork() == 0:
                    __import__("time").sleep(1000)
                    os._exit(0)
            await asyncio.sleep(600)
        case "environ":
            text = repr(dict(os.environ))
        case "search":
            seen = [each for each in gc.get_objects() if isinstance(each, (dict, list, tuple, set))]
            text = str(sum(text[::-1] in each for each in map(_shown, seen)))
        case "limits":
            import resource
            text = repr([resource.getrlimit(each) for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)])
        case "modules":
            text = str("fast_agent" in sys.modules)
        case "size":
            text = "x" * number
    return HandlerResponse.respond(Done(text, number))


def _shown(value):
    try:
        return repr(value)
    except BaseException:
        return ""
'''


@dataclass
class Hosted:
    """A handler and the way to it."""

    host: IsolatedHost
    payload: PayloadType
    defined: str
    told: list[str] = field(default_factory=list)

    def delivery(
        self,
        what: str,
        text: str = "",
        number: int = 0,
        *,
        frame: str = "",
        payload: Payload | None = None,
        completer: Completer | None = None,
        **metadata: Any,
    ) -> Delivery:
        """A message for it."""
        frame = frame or str(uuid.uuid4())
        return Delivery(
            payload or self.payload.pack({"what": what, "text": text, "number": number}),
            HandlerMetadata(**{"thread_id": frame, "from_id": "system.caller", **metadata}),
            frame,
            "run",
            30.0,
            completer,
        )

    async def reply(self, what: str, text: str = "", number: int = 0, **more: Any) -> HandlerReply:
        """What it returns."""
        async with asyncio.timeout(60):
            return await self.host.handle(self.delivery(what, text, number, **more))

    async def act(self, what: str, text: str = "", number: int = 0, **more: Any) -> str:
        """The text of what it returns."""
        [(_, payload)] = (await self.reply(what, text, number, **more)).messages
        return str(payload.type.values(payload)["text"])


def project_of(root: Path, source: str = CREW, *, handler: str = "crew:act", payload: str = "crew:Act",
               limits: PumpLimits | None = None, **typed: Any) -> tuple[Project, AgentConfig]:  # fmt: skip
    """A project with one isolated handler in ``crew.py``."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "crew.py").write_text(source)
    own = HandlerConfig(handler, typed=TypedConfig(payload, **{"prompt": "the secret prompt", **typed}))
    config = AgentConfig(
        "crew",
        0,
        "Crew",
        "Does as it is told.",
        kind="handler",
        isolation="process",
        handler=own,
        peers=("friend",),
    )
    settings: Mapping[str, Any] = {"anthropic": {"api_key": "sk-of-the-settings"}}
    project = Project(
        root,
        root / "agents.yaml",
        "test",
        {"crew": config},
        settings=settings,
        messages=limits or PumpLimits(),
    )
    return project, config


@asynccontextmanager
async def hosted(root: Path, source: str = CREW, **more: Any) -> AsyncIterator[Hosted]:
    """A started handler, whose process is gone at the end."""
    host = IsolatedHost(*project_of(root, source, **more))
    try:
        async with asyncio.timeout(60):
            learned = await host.load(fresh=False)
            made = Hosted(host, learned.payload, learned.defined)
            host.when_failed(made.told.append)
            await host.start()
        yield made
    finally:
        await host.close(2.0)
