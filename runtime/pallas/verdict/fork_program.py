"""Run as a program: import everything, then fork a judge for each request on standard input.

A line of standard input is a request ``{"number": 1, "request": {...}}``, or ``{"cancel": 1}``; a request
ends the one before. Standard output has ``{"number": 1, "verdict": {...}}`` for each run and
``{"number": 1, "end": PROBLEM}`` behind the last. By a request with ``is_rehearsal``, which is judged as any
other, the program learns what forks of the project need.

The program has one thread and no event loop, and knows nothing of the project: each fork loads that as it is.
It ends when standard input does, and a fork with it. Where the system cannot fork, the program judges one
request itself and ends.
"""

import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final, NoReturn

_CHUNK: Final = 65_536
_NICE: Final = 10
"""How much a rehearsal, which no person waits for, is put behind other work."""
_MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of a line: a request has an environment in it."""
_SKIPPED: Final = (
    *("pallas.server", "pallas.cli.", "pallas.stdio_bridge", "pallas.scripted", "pallas.console"),
    *("pallas.ledger.migrations.", "pallas.templates.", "pallas.agent_tests.pytest"),
)
_LATER: Final = (
    *("PIL.Image", "anyio._backends._asyncio", "encodings.idna", "fast_agent.core.agent_card_loader"),
    *("fast_agent.core.environment_lifecycle", "fast_agent.hooks.session_history"),
    *("fast_agent.llm.internal.passthrough", "fast_agent.llm.provider.openai.llm_generic"),
    *("fast_agent.llm.provider_key_manager", "fast_agent.tools.attach_media", "fastmcp.apps.app"),
    *("fastmcp.server.server", "fastmcp.server.providers.prefab_synthesis", "fastmcp.server.sessions"),
    *("openai.resources.chat.completions", "uvicorn.lifespan.on", "uvicorn.protocols.http.auto", "uvloop"),
)
"""What a fleet that starts imports and Pallas does not name: libraries import it when they need it."""


def main() -> None:
    """Serve until standard input ends."""
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _import_everything()
    if not hasattr(os, "fork"):
        _judge_once(out)
        return
    _Forks(out).serve()


def _judge_once(out: int) -> None:
    """Judge the first request that a person waits for, and end; so does what comes meanwhile.

    A fork for each request learns from a rehearsal, this process not.
    """
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        if "request" in asked and not asked.get("is_rehearsal"):
            threading.Thread(target=_end_with, args=(0,), daemon=True).start()
            _judge(asked, out)
            os._exit(0)  # the thread waits for what comes


class _Forks:
    """The fork that judges now."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._pid = 0
        self._number = 0
        self._held = -1
        self._said = -1
        """What the fork says at its end; its end of the pipe closes when it ends."""
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)

    def serve(self) -> None:
        rest = b""
        while True:
            ready = {descriptor for descriptor, _ in self._poll.poll()}
            if self._said in ready:
                self._has_ended()
            if 0 not in ready:
                continue
            data = os.read(0, _CHUNK)
            if not data or len(rest) > _MAX_LINE:
                self._end()
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._heed(json.loads(line))

    def _heed(self, asked: dict[str, Any]) -> None:
        if "cancel" in asked:
            if asked["cancel"] == self._number:
                self._end()
            return
        self._end()
        self._fork(asked)

    def _fork(self, asked: dict[str, Any]) -> None:
        said, says = os.pipe()
        leash, held = os.pipe()
        if not (pid := os.fork()):
            os.close(said)
            os.close(held)
            os.setsid()
            _judge_and_exit(asked, self._out, says, leash)
        os.close(says)
        os.close(leash)
        self._pid, self._number, self._said, self._held = pid, asked["number"], said, held
        self._poll.register(said, select.POLLIN)

    def _has_ended(self) -> None:
        """The fork has ended, or says before its end what it had to import: the next one has it then."""
        learned = b""
        while data := os.read(self._said, _CHUNK):
            learned += data
        number = self._number
        status = self._reap()
        if status:
            _write(
                self._out, {"number": number, "end": f"the process that judges ended with status {status}"}
            )
        from pallas.verdict.learned import learn

        learn(learned)

    def _end(self) -> None:
        """Kill the fork with all that it started."""
        if self._pid:
            with suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
            with suppress(OSError):  # it may not be the leader of its group yet
                os.kill(self._pid, signal.SIGKILL)
            self._reap()
            os.write(self._out, b"\n")  # behind a line that it may not have finished

    def _reap(self) -> int:
        self._poll.unregister(self._said)
        for descriptor in (self._said, self._held):
            os.close(descriptor)
        _, status = os.waitpid(self._pid, 0)
        self._pid, self._number, self._said = 0, 0, -1
        return os.waitstatus_to_exitcode(status)


def _judge_and_exit(asked: dict[str, Any], out: int, says: int, leash: int) -> NoReturn:
    """In a fork: judge, and end."""
    from pallas.verdict.learned import Learned

    status = 1
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        threading.Thread(target=_end_with, args=(leash,), daemon=True).start()
        before = Learned.now()
        _judge(asked, out)
        with open(says, "wb") as pipe:
            pipe.write(Learned.now().since(before))
        status = 0
    finally:
        os._exit(status)


def _end_with(leash: int) -> None:
    """End this process when the one that forked it has ended."""
    with suppress(OSError):
        os.read(leash, 1)
    os._exit(1)


def _judge(asked: dict[str, Any], out: int) -> None:
    """Judge a request, and write each verdict and the end."""
    problem = ""
    try:
        _verdicts(asked, out)
    except Exception as error:
        from pallas.config import ConfigError
        from pallas.model import Fault

        problem = str(error) if isinstance(error, ConfigError | Fault) else f"{type(error).__name__}: {error}"
    _write(out, {"number": asked["number"], "end": problem})


def _verdicts(asked: dict[str, Any], out: int) -> None:
    from pydantic import TypeAdapter

    from pallas.config import load_project
    from pallas.fleet.reload.verdict_judge import JudgeRequest
    from pallas.processes.event_loop import new_runner
    from pallas.telemetry.log import redact_project
    from pallas.verdict.judge import Judge
    from pallas.verdict.live_judge import LiveJudge

    request = TypeAdapter(JudgeRequest).validate_python(asked["request"])
    if asked.get("is_rehearsal"):
        os.nice(_NICE)
    if request.environment is not None:
        os.environ.clear()
        os.environ.update(request.environment)
    os.chdir(request.root)
    project = load_project(request.root)
    redact_project(project)

    async def judge() -> None:
        judge = Judge(project, request) if request.live is None else LiveJudge(project, request)
        async for verdict in judge.verdicts():
            _write(out, {"number": asked["number"], "verdict": asdict(verdict)})

    # It is not closed, which would wait for a scorer that does not return: the process ends.
    new_runner().run(judge())


def _write(out: int, line: dict[str, Any]) -> None:
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(out, data) :]


def _import_everything() -> None:
    """Import all that a judge needs. Nothing of it may start a thread: a fork would lose it."""
    gc.disable()
    import pallas
    from pallas.processes import import_seam

    import_seam.install()
    for name in (*_names_in(pallas.__path__), *_LATER):
        with suppress(ImportError):  # of another version of a library, or of an extra that is not installed
            importlib.import_module(name)
    gc.enable()
    gc.freeze()  # else the first collection in each fork would copy all of it


def _names_in(path: Any) -> Iterator[str]:
    for found in pkgutil.walk_packages(path, "pallas."):
        if not f"{found.name}.".startswith(_SKIPPED) and not found.name.endswith(".__main__"):
            yield found.name


if __name__ == "__main__":
    main()
