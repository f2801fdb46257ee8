"""A project whose files are saved while its fleet runs, and what came of that."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from pallas.config import export_env
from pallas.fleet.fleet import Fleet
from pallas.fleet.reload.verdict_judge import VerdictJudge
from pallas.model import AgentState, Notice, Reloaded

from .live import agent_module, running
from .offline import offline_project
from .waiting import until

# The model says back which version of an agent asks it, and how long the conversation is.
SCRIPT = """
rules:
  - when: {last: user, text: use your tool}
    call: [{tool: echo__echo, arguments: {text: "x"}}]
  - when: {last: tool}
    say: "{{ result }}"
"""


def saying(*words: str, more: str = "") -> str:
    """A script in which an agent whose instruction holds one of the words says it, and the turn."""
    rules = "".join(
        f'  - when: {{last: user, system: "{word}"}}\n    say: "{word} {{{{ turns }}}}"\n' for word in words
    )
    return SCRIPT + more + rules + '  - say: "none {{ turns }}"\n'


def module(name: str, instruction: str, servers: tuple[str, ...] = (), **more: object) -> str:
    """The source of an agent with that instruction."""
    return agent_module(name, servers, **more).replace(f"You are {name}.", instruction)


class Saves:
    """Saves files of a project and tells which agents have a new version because of it."""

    def __init__(self, fleet: Fleet, root: Path) -> None:
        self.fleet = fleet
        self.root = root
        self._probes = 0
        self._told: list[Reloaded] = []
        fleet.hub.listen(lambda event: self._told.append(event) if isinstance(event, Reloaded) else None)

    def versions(self) -> dict[str, int]:
        """The version of each agent."""
        return {agent.name: agent.version for agent in self.fleet.snapshot().agents}

    def instruction(self, name: str) -> str:
        """What the version that answers is told."""
        agent = next(each for each in self.fleet.agents if each.name == name)
        return agent.executor.info.instruction if agent.executor is not None else ""

    def write(self, path: str, text: str) -> None:
        """Save a file as simple editors do."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, "utf-8")

    def edit(self, path: str, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a YAML file."""
        content = yaml.safe_load((self.root / path).read_text("utf-8"))
        change(content)
        self.write(path, yaml.safe_dump(content, sort_keys=False))

    async def settled(self) -> None:
        """Until everything saved so far was acted on: the agent ``probe`` gets another version last."""
        self._probes += 1
        told = f"Probe {self._probes}."
        await until(lambda: self.fleet.agents and not self.busy())
        self.write("agents/probe.py", module("probe", told))
        await until(lambda: self.instruction("probe") == told)
        await until(lambda: not self.busy())

    def busy(self) -> bool:
        """Whether changed files wait, or are being acted on."""
        watch = self.fleet.snapshot().watch
        return watch is not None and bool(watch.waiting or watch.reloading or watch.testing)

    async def after(self, path: str, text: str) -> set[str]:
        """The agents with a new version after a file is saved."""
        return await self.concerned(lambda: self.write(path, text))

    async def concerned(self, change: Callable[[], None]) -> set[str]:
        """The agents with a new version after a change. Prints the attempts, for a test that fails."""
        before, attempts = self.versions(), len(self._told)
        change()
        await self.settled()
        now = self.versions()
        print(*self._told[attempts:], *self.notices(), sep="\n")
        return {name for name in now.keys() & before.keys() if now[name] != before[name]} - {"probe"}

    def told(self) -> list[Reloaded]:
        """What was told of attempts so far."""
        return list(self._told)

    def notices(self) -> list[str]:
        """What was told besides."""
        return [event.text for event in self.fleet.hub.since(0).events if isinstance(event, Notice)]

    async def outcome(self, agent: str, after: int = 0) -> Reloaded:
        """The first attempt for an agent (the project, with an empty name) told after a number."""
        return await until(
            lambda: next((each for each in self.told() if each.agent == agent and each.seq > after), None)
        )


@asynccontextmanager
async def watched(
    root: Path,
    agents: Mapping[str, str | None],
    script: str,
    *,
    probe: bool = True,
    before: Callable[[Path], None] = lambda _: None,
    database: str | None = None,
    judge: VerdictJudge | None = None,
    **more: Any,
) -> AsyncIterator[Saves]:
    """A fleet of such a project that watches its files; ``more`` as for ``offline_project``."""
    everyone = {**agents, **({"probe": None} if probe else {})}
    offline_project(root, everyone, script, **more)
    before(root)
    export_env(root)
    async with running(root, watch=True, database=database, judge=judge) as fleet:
        await until(lambda: all(each.state is not AgentState.WAITING for each in fleet.agents))
        await asyncio.sleep(0)
        yield Saves(fleet, root)
    (root / ".env").unlink(missing_ok=True)
    export_env(root)
