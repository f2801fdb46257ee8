"""A project with recorded tests that hold new versions back, whose files are saved while its fleet runs."""

import os
import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from pallas.agent_tests.kept_test import keep
from pallas.agent_tests.reload_tests import ReloadTests
from pallas.model import AgentState, HoldingTest

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


async def gated_project(root: Path, **reload: Any) -> Path:
    """The tests ``hello`` of ``desk`` and ``through`` of ``front``, which asks desk. ``late`` needs desk.

    ``late`` and ``other`` have no tests. In the folder ``birch`` is the recording of hello with the
    instruction Birch. ``reload`` are more keys of that section.
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
        top={"bind": "127.0.0.1", "reload": {"gate": "tests", **reload}},
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


class CountedTests(ReloadTests):
    """Counts how often tests are run; ``names`` are those of the last time."""

    def __init__(self) -> None:
        self.runs = 0
        self.names: frozenset[str] = frozenset()

    async def failing(self, root: Path, names: Collection[str], timeout: float) -> Sequence[HoldingTest]:
        self.runs += 1
        self.names = frozenset(names)
        return await super().failing(root, names, timeout)


class GatedSaves(Saves):
    """Saves of the agent ``desk`` and of others, of a fleet whose versions wait for tests."""

    tests: CountedTests

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
        self.edit("agents.yaml", lambda content: content.update(reload={"gate": gate}))


@asynccontextmanager
async def gated(root: Path, tests: CountedTests | None = None) -> AsyncIterator[GatedSaves]:
    """A fleet of ``gated_project`` that watches its files, all of them running."""
    tests = tests or CountedTests()
    async with running(root, watch=True, tests=tests) as fleet:
        await until(lambda: all(each.state is AgentState.READY for each in fleet.agents))
        saves = GatedSaves(fleet, root)
        saves.tests = tests
        await saves.settled()
        yield saves


def replace_test(root: Path, recording: Path) -> None:
    """Give the test ``hello`` another recording, and expect nothing special of it."""
    entry = {"agent": "desk", "ask": "hello", "recording": f"../../{recording.relative_to(root)}"}
    (root / "tests" / "agents" / "hello.yaml").write_text(yaml.safe_dump(entry))
