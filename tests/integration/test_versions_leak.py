"""New versions of an agent leave nothing behind: everything is as it was after the first few."""

import asyncio
import gc
import logging
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from fast_agent import FastAgent
from fast_agent.core.harness import AgentHarness
from support.live import ECHO, agent_module, ask, client, running, write_project
from support.pallas_process import below
from support.ports import free_ports
from support.waiting import until

from pallas.downstreams.connection import Connection
from pallas.executors.fastagent.downstreams_seam import Downstreams
from pallas.executors.fastagent.fastagent_executor import FastAgentExecutor
from pallas.executors.fastagent.read_files import Reads
from pallas.fleet.fleet import Fleet
from pallas.fleet.reload.agent_version import AgentVersion
from pallas.model import Reloaded

# So many of each kind of object may be alive: the version that answers, the parked one, the other agent's.
LIVING = (FastAgent, AgentHarness, FastAgentExecutor, AgentVersion, Reads, Downstreams, Connection)


Level = dict[str, int]


def drop_cancelled_timers() -> None:
    """Have the loop drop its cancelled timers the next time it runs.

    Otherwise it keeps each, and what its context refers to, until it would have been due: a minute and more.
    """
    loop = asyncio.get_running_loop()
    for _ in range(500):  # it looks through them once more than half of them are cancelled
        loop.call_later(3600, int).cancel()


# Processes that other tests of this pytest process have started and that live on.
_others: set[int] = set()


def level(root: Path) -> Level:
    """How much there is of what could be left behind."""
    drop_cancelled_timers()
    gc.collect()
    here, alive = psutil.Process(), gc.get_objects()
    kinds = Counter(map(type, alive))
    loggers = [
        each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)
    ]
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    return {
        "tasks": len(asyncio.all_tasks()),
        "descriptors": here.num_fds(),
        # Without those that wait for short work: the loop keeps so many, and no more.
        "threads": sum(not each.name.startswith(("asyncio_", "AnyIO")) for each in threading.enumerate()),
        "children": sum(each.pid not in _others for each in below()),
        "modules": sum(file.startswith(f"{root}/") for file in files),
        # Modules that nobody can import any more are alive all the same while something holds their names.
        "copies": sum(type(each) is dict and each.get("__name__") == "agents.one" for each in alive),
        "filters": sum(len(each.filters) + len(each.handlers) for each in [logging.root, *loggers]),
        "path": len(sys.path),
        **{kind.__name__: kinds[kind] for kind in LIVING},
    }


def source(number: int, servers: tuple[str, ...], more: str = "") -> str:
    return more + agent_module("one", servers).replace("You are one.", f"Version {number}.")


async def rounds(
    fleet: Fleet, root: Path, numbers: range, say: Callable[[], Awaitable[Any]], outcome: str = "live"
) -> None:
    """New versions one after the other; every tenth has a program of its own, each answers once."""
    agent = fleet.agents[0]
    for number in numbers:
        servers = ("two", "echo") if number % 10 == 0 else ("two",)
        more = "import sys\nsys.path.insert(0, 'lib')\n" + ("" if outcome == "live" else "raise ValueError\n")
        (root / "agents/one.py").write_text(source(number, servers, more if number % 2 else more + "\n"))
        told = await agent.swap(agent.project, agent.config, files=("agents/one.py",))
        assert told.outcome == outcome, told.error
        await say()


@pytest.fixture(autouse=True)
def others() -> None:
    _others.clear()
    _others.update(each.pid for each in below())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = write_project(tmp_path, {"one": None, "two": None}, config=ECHO)
    port = yaml.safe_load((root / "agents.yaml").read_text())["agents"]["two"]["port"]
    config = yaml.safe_load((root / "fastagent.config.yaml").read_text())
    config["mcp"]["servers"]["two"] = {"url": f"http://127.0.0.1:{port}/mcp", "auth": {"oauth": False}}
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(config))
    return root


@pytest.fixture(autouse=True)
def no_records() -> Iterator[None]:
    """Those that a test is shown keep tracebacks, and those the modules that failed."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def _at_rest(fleet: Fleet) -> bool:
    """Whether no instance is made or ended, and each is connected to its servers."""
    executors: list[Any] = [agent.executor for agent in fleet.agents]
    instances = [each for executor in executors for each in executor._instances.values()]
    return not (
        any(executor._pool._tasks for executor in executors)
        or any(each.servers.missing() for each in instances)
        or any(not task.done() for each in instances for task in each.servers._attempts.values())
    )


async def level_now(fleet: Fleet, root: Path) -> Level:
    """The level at rest, without what cancelled timers hold."""
    await until(lambda: _at_rest(fleet))
    drop_cancelled_timers()
    await asyncio.sleep(0.01)
    return level(root)


async def back_to(root: Path, before: Level) -> None:
    """Until nothing is left of what ends in the background."""
    more: dict[str, tuple[int, int]] = {}

    def settled() -> bool:
        more.clear()
        more.update({name: (before[name], now) for name, now in level(root).items() if now > before[name]})
        return not more

    try:
        await until(settled)
    except AssertionError:
        pytest.fail(f"more than before (before, now): {more}")


@pytest.mark.slow
async def test_many_versions_leave_nothing_behind(root: Path) -> None:
    async with running(root) as fleet, client(fleet, "one") as caller:

        async def say() -> None:
            assert await ask(caller, "hello") == "hello"

        await rounds(fleet, root, range(19, 23), say)  # with a program once: what that needs is imported
        await until(lambda: level(root)["children"] == 0)
        before = await level_now(fleet, root)
        await rounds(fleet, root, range(100, 113), say)
        await back_to(root, before)
        assert fleet.snapshot().agents[0].version == 18


@pytest.mark.slow
async def test_versions_that_failed_and_ways_back_leave_nothing_behind(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(root) as fleet, client(fleet, "one") as caller:

        async def say() -> None:
            assert await ask(caller, "hello") == "hello"

        async def there_and_back() -> None:
            for _ in range(2):
                assert (await fleet.agents[0].rollback()).outcome == "live"
                await say()

        await rounds(fleet, root, range(1, 4), say)
        await rounds(fleet, root, range(1, 4), say, "failed")
        await there_and_back()
        before = await level_now(fleet, root)
        for first in range(101, 110, 3):
            await rounds(fleet, root, range(first, first + 2), say, "failed")
            await there_and_back()
        await back_to(root, before)


@pytest.mark.slow
async def test_saves_that_a_watcher_hears_of_leave_nothing_behind(root: Path) -> None:
    async with running(root, watch=True) as fleet, client(fleet, "one") as caller:
        topology = (root / "agents.yaml").read_text("utf-8")
        ports = free_ports(2)

        async def saved(numbers: range) -> None:
            """New versions; each third is broken at first; each fifth time one comes, goes, and one moves."""
            for number in numbers:
                version = fleet.snapshot().agents[0].version
                if number % 3 == 0:
                    mark = fleet.hub.seq
                    (root / "agents/one.py").write_text(source(number, ("two",), "raise ValueError\n"))
                    await until(lambda mark=mark: _told(fleet, mark, "failed"))
                (root / "agents/one.py").write_text(source(number, ("two",)))
                await until(lambda version=version: fleet.snapshot().agents[0].version == version + 1)
                assert await ask(caller, "hello") == "hello"
                if number % 5 == 0:
                    changed = yaml.safe_load(topology)
                    changed["agents"]["three"] = {"module": "agents.two", "port": ports[0]}
                    changed["agents"]["two"]["port"] = ports[1]
                    (root / "agents.yaml").write_text(yaml.safe_dump(changed, sort_keys=False), "utf-8")
                    await until(lambda: (three := fleet.snapshot().agent("three")) and three.version)
                    (root / "agents.yaml").write_text(topology, "utf-8")
                    await until(lambda: fleet.kernel.list() == ("one", "two"))
                await until(lambda: not (watch := fleet.snapshot().watch) or not watch.reloading)

        await saved(range(14, 17))  # the last one moves nothing: what calls it is connected
        before = await level_now(fleet, root)
        await saved(range(100, 106))
        await back_to(root, before)


def _told(fleet: Fleet, mark: int, outcome: str) -> bool:
    events = fleet.hub.since(mark).events
    return any(isinstance(each, Reloaded) and each.outcome == outcome for each in events)
