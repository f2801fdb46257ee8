"""A project with kept tests that are judged on each save, whose files are saved while its fleet runs."""

import os
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from pallas.agent_tests.kept_test import keep
from pallas.fleet.reload.verdict_judge import JudgeRequest
from pallas.model import AgentState, RunVerdict, VerdictReached
from pallas.verdict.warm_judge import WarmJudge

from .live import ask, client, running
from .offline import offline_project
from .reloading import Saves, module
from .replayed import FOLDER, recorded
from .waiting import until

KNOWN = ("Apple.", "Birch.")
"""The instructions that the model knows: it says them, and which turn it is."""
_SCRIPT = """
rules:
  - when: {last: user, system: Ask desk.}
    call: [{tool: desk__send_message, arguments: {message: "hello"}}]
  - when: {last: tool}
    say: "desk says {{ result }}"
  - when: {last: user, system: Apple.}
    say: "Apple. {{ turns }}"
  - when: {last: user, system: Birch.}
    say: "Birch. {{ turns }}"
  - say: "none"
"""
_NEEDS_DESK: Mapping[str, Any] = {"depends_on": ["desk"]}


async def gated_project(root: Path, gate: str = "hold", **verdict: Any) -> Path:
    """The tests ``hello`` of ``desk`` and ``through`` of ``front``, which asks desk. ``late`` needs desk.

    ``late`` and ``other`` have no tests. In the folder ``birch`` is the recording of hello with the
    instruction Birch. ``gate`` and ``verdict`` are keys of that section.
    """
    offline_project(
        root,
        {
            "desk": module("desk", "Apple."),
            "front": module("front", "Ask desk.", ("desk",)),
            "late": module("late", "Apple."),
            "other": module("other", "Apple."),
            "probe": None,
        },
        _SCRIPT,
        peers=("desk",),
        keys={"front": _NEEDS_DESK, "late": _NEEDS_DESK},
        top={"bind": "127.0.0.1", "verdict": {"gate": gate, **verdict}},
    )
    desk = root / "agents" / "desk.py"
    desk.write_text(module("desk", "Birch."))
    os.utime(desk, (1, 1))  # Python tells two files of one length apart by the second of their time only
    await recorded(root, "desk", "hello")
    shutil.move(root / FOLDER, root / "birch")
    desk.write_text(module("desk", "Apple."))
    for name, agent in (("hello", "desk"), ("through", "front")):
        keep(await recorded(root, agent, "hello"), root, name)
        shutil.rmtree(root / FOLDER)
    return root


class CountedJudge(WarmJudge):
    """Counts how often runs are judged; ``names`` are those of the last time."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self.names: frozenset[str] = frozenset()

    async def verdicts(self, request: JudgeRequest) -> AsyncGenerator[RunVerdict]:
        self.runs += 1
        self.names = frozenset(request.tests)
        async for verdict in super().verdicts(request):
            yield verdict


class GatedSaves(Saves):
    """Saves of the agent ``desk`` and of others, of a fleet whose runs are judged."""

    judge: CountedJudge

    def desk(self, word: str, more: str = "") -> None:
        """Save another instruction of the agent that the tests are about."""
        self.write("agents/desk.py", module("desk", word) + more)

    def held(self) -> tuple[str, ...]:
        """The agents whose next version is held back."""
        watch = self.fleet.snapshot().watch
        assert watch is not None
        return watch.held

    async def is_held(self, *names: str) -> None:
        """Wait until exactly these are held back, and nothing is under way."""
        await until(lambda: self.held() == names and not self.busy())

    async def is_live(self, name: str, above: int) -> None:
        """Wait until a version above that number answers."""
        await until(lambda: self.versions()[name] > above and not self.busy())

    async def says(self, agent: str, era: str) -> str:
        """What an agent answers."""
        async with client(self.fleet, agent, era=era) as caller:
            return await ask(caller, "hello")

    def gate(self, gate: str) -> None:
        """Save which gate there is."""
        self.edit("agents.yaml", lambda content: content.update(verdict={"gate": gate}))

    def verdicts(self) -> list[VerdictReached]:
        """The verdicts so far."""
        return [event for event in self.fleet.hub.since(0).events if isinstance(event, VerdictReached)]

    async def verdict(self, number: int = 0) -> VerdictReached:
        """The verdict of that number, from 0."""
        return await until(lambda: self.verdicts()[number] if len(self.verdicts()) > number else None)


@asynccontextmanager
async def gated(
    root: Path, judge: CountedJudge | None = None, database: str | None = None
) -> AsyncIterator[GatedSaves]:
    """A fleet of ``gated_project`` that watches its files, all of them running."""
    judge = judge or CountedJudge()
    async with running(root, watch=True, judge=judge, database=database) as fleet:
        await until(lambda: all(each.state is AgentState.READY for each in fleet.agents))
        saves = GatedSaves(fleet, root)
        saves.judge = judge
        await saves.settled()
        yield saves


def judging(root: Path) -> list[psutil.Process]:
    """The processes that judge saves of this project."""
    found = []
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if "pallas.verdict.fork_program" in each.cmdline() and each.cwd() == str(root):
                found.append(each)
    return found


def replace_test(root: Path, recording: Path) -> None:
    """Give the test ``hello`` another recording, and expect nothing special of it."""
    entry = {"agent": "desk", "ask": "hello", "recording": f"../../{recording.relative_to(root)}"}
    (root / "tests" / "agents" / "hello.yaml").write_text(yaml.safe_dump(entry))
