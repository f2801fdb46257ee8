"""The process that judges, as the fleet uses it: it is started once, and asked at each save."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from pallas.config import ConfigError, Project
from pallas.fleet.parent_death import leashed
from pallas.fleet.reload.verdict_judge import JudgeRequest, LeadingRun
from pallas.model import Fault, FaultType, RunVerdict, codec
from pallas.safe_text import sanitize

_MAX_LINE: Final = 256 * 1024
"""Bytes of what is said of a run, in whatever alphabet."""
_END: Final = 2.0
"""Seconds that the process has to end by itself."""
_MOST: Final = 2_000
_STARTS: Final = 2
"""Times that the process is started for a request: where the system cannot fork it ends after each."""
_MOST_REHEARSED: Final = 50


class WarmJudge:
    """Judges recorded runs in a process of its own, one request at a time. One event loop only."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._number = 0
        self._turn = asyncio.Lock()
        """Who holds it reads what the process says."""

    async def warm(self, project: Project) -> None:
        """Start the process, if the project has tests or judges recent runs. Never raises."""
        if project.verdict.gate == "off":
            return
        tests = await asyncio.to_thread(_rehearsed, project)
        if tests or project.verdict.recent:
            async with self._turn:
                with suppress(OSError):  # a save says so
                    await self._started(project.root)
                    if tests:
                        names, affected = tuple(each.name for each in tests), frozenset({tests[0].agent})
                        request = JudgeRequest(root=project.root, affected=affected, tests=names)
                        await self._send({"number": 0, "is_rehearsal": True, "request": _document(request)})

    async def tests_leading_to(self, project: Project, agents: Collection[str]) -> Sequence[LeadingRun]:
        """Return the tests with a recording that lead to any of these agents. Raises ConfigError."""
        return await asyncio.to_thread(_tests_leading_to, project, agents)

    async def verdicts(self, request: JudgeRequest) -> AsyncGenerator[RunVerdict]:
        """Return each verdict as soon as it is known; closing the iterator ends the work.

        Raises Fault (CONFIG) if the runs cannot be judged.
        """
        self._number += 1
        number = self._number
        async with self._turn:
            try:
                async with aclosing(self._said(number, request)) as lines:
                    async for said in lines:
                        if "end" in said:
                            number = 0
                            if said["end"]:
                                raise Fault(FaultType.CONFIG, sanitize(str(said["end"]), _MOST))
                            return
                        yield codec.decode(RunVerdict, said["verdict"])
                number = 0
                raise Fault(FaultType.CONFIG, "the process that judges recorded runs ended")
            except OSError as error:
                raise Fault(FaultType.CONFIG, f"no process judges recorded runs: {error}") from error
            finally:
                if number:
                    with suppress(OSError):
                        await self._send({"cancel": number})

    async def _said(self, number: int, request: JudgeRequest) -> AsyncGenerator[dict[str, Any]]:
        """What the process says of a request. One that ends before it says anything is started once more."""
        line = {"number": number, "request": _document(request)}
        for _ in range(_STARTS):
            process, is_heard = await self._started(request.root), False
            with suppress(ConnectionError):  # it ended before
                await self._send(line)
            async for said in _lines_of(process):
                if said.get("number") == number:  # else of a request that was given up
                    is_heard = True
                    yield said
            await self.close()
            if is_heard:
                return

    async def close(self) -> None:
        """End the process, and what it forked."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_END):
                while await process.stdout.read(_MAX_LINE):
                    pass  # to its end: else the pipe stays open
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _started(self, root: Path) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *leashed((sys.executable, "-P", "-m", "pallas.verdict.fork_program")),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                cwd=root,
                limit=_MAX_LINE,
                start_new_session=True,
            )
        return self._process

    async def _send(self, line: dict[str, Any]) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            await self._process.stdin.drain()


async def _lines_of(process: Process) -> AsyncIterator[dict[str, Any]]:
    """What the process says; a line that a killed fork did not finish is left out."""
    assert process.stdout is not None
    while line := await process.stdout.readline():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict):
            yield said


def _document(request: JudgeRequest) -> dict[str, Any]:
    found = asdict(request)
    found["root"] = str(request.root)
    found["affected"] = sorted(request.affected)
    found["runs"] = [{**asdict(each), "file": str(each.file)} for each in request.runs]
    found["environment"] = dict(os.environ)
    return found


def _rehearsed(project: Project) -> list[LeadingRun]:
    """Tests by which the process learns what it needs for the project; none if they have mistakes."""
    with suppress(ConfigError):
        return _tests_leading_to(project, project.agents)[:_MOST_REHEARSED]
    return []


def _tests_leading_to(project: Project, agents: Collection[str]) -> list[LeadingRun]:
    # Nothing of this is imported for a fleet that judges nothing.
    from pallas.agent_tests.affected_tests import affected_tests
    from pallas.agent_tests.agent_test_file import find_tests

    tests = [each for each in find_tests(project) if any(turn.recording for turn in each.turns)]
    asked = {test.name: test.agent for test in tests}
    found = affected_tests(tests, project, agents)
    return [LeadingRun(name, "test", asked[name], reached) for name, reached in found.items()]
