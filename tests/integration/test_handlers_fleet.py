"""Agents in plain Python in a fleet: those of its files, and those that are registered with it."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.live import ERAS, ask, ask_agent, client, running
from support.ports import free_ports
from support.waiting import until

from pallas.config import Project, load_project
from pallas.config.kinds import WorkerConfig
from pallas.fleet.fleet import Fleet
from pallas.fleet.reload import file_watcher
from pallas.handlers import PromptRequest, Session
from pallas.model import (
    ANONYMOUS,
    AgentState,
    Event,
    Fault,
    FaultType,
    Notice,
    Reloaded,
)

LOWER = '''
"""Says it quietly."""

from helper import shown


async def answer(request):
    """Says it quietly."""
    return shown(request.text)


class Counter:
    id = "whatever"

    def __init__(self):
        self.asked = 0

    async def prompt(self, request):
        self.asked += 1
        return str(self.asked)


COUNTER = Counter()


def late(request):
    return "too late"
'''
SIMPLE = Path(__file__).parents[1] / "support" / "worker_simple.py"


class Upper:
    """Shouts."""

    id = "upper"
    capabilities = ("shouting",)

    def __init__(self, word: str = "") -> None:
        self.word = word

    async def prompt(self, request: PromptRequest) -> str:
        if request.text == "fail":
            raise ValueError("kaput")
        return self.word or request.text.upper()


def handlers(root: Path, **agents: dict[str, Any]) -> Path:
    """A project of handlers; keys of each agent."""
    entries = {name: {"kind": "handler", **keys} for name, keys in agents.items()}
    topology = {"name": "test", "port": free_ports(1)[0], "agents": entries}
    root.mkdir(exist_ok=True)
    (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
    (root / "lower.py").write_text(LOWER)
    (root / "helper.py").write_text("def shown(text):\n    return text.lower()\n")
    return root


@asynccontextmanager
async def bare(root: Path, **more: Any) -> AsyncIterator[Fleet]:
    """A fleet without any agent of files, not started yet."""
    project = Project(root, root / "agents.yaml", "test", {}, registry_port=free_ports(1)[0], **more)
    fleet = Fleet(project, dev=True)
    before = Path.cwd()
    try:
        yield fleet
    finally:
        await fleet.stop()
        os.chdir(before)


def notices(fleet: Fleet) -> list[str]:
    """What was told so far."""
    return [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]


def shadows(fleet: Fleet, agent: str) -> tuple[str, ...]:
    """Whom an agent stands before, as discovery shows it."""
    (info,) = [each for each in fleet.surfaces.directory.infos(ANONYMOUS) if each.id == agent]
    return info.shadows


async def test_a_function_a_class_and_an_object_of_the_project_answer_over_mcp(tmp_path: Path) -> None:
    root = handlers(
        tmp_path,
        low={"handler": "lower:answer"},
        counter={"handler": "lower:Counter"},
        counted={"handler": "lower:COUNTER"},
    )
    async with running(root) as fleet:
        for era in ERAS:
            async with client(fleet, "low", era=era) as caller:
                assert await ask(caller, "HELLO") == "hello"
        assert [await ask_agent(fleet, "counter", "Hi") for _ in range(2)] == ["1", "2"]
        assert await ask_agent(fleet, "counted", "Hi") == "1"
        low = fleet.agents[0].executor
        assert low is not None
        assert (low.info.defined, low.info.files) == ("lower.py:7", ("helper.py", "lower.py"))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("lower:missing", "lower.py: there is no missing in lower, which agents.yaml:4 names"),
        ("lower:late", "lower.py:26: handler lower:late of low (late) is not asynchronous; write `async def"),
        ("broken:answer", "broken.py:2: ZeroDivisionError: division by zero"),
    ],
)
async def test_what_is_wrong_with_a_handler_is_told_with_its_line(
    tmp_path: Path, path: str, problem: str
) -> None:
    root = handlers(tmp_path, low={"handler": path})
    (root / "broken.py").write_text("one = 1\nanswer = one / 0\n")
    async with running(root) as fleet:
        (agent,) = fleet.agents
        assert agent.state is AgentState.ERROR
        assert problem in agent.reason


async def test_a_changed_file_of_a_handler_is_its_next_version(tmp_path: Path) -> None:
    root = handlers(tmp_path, low={"handler": "lower:answer"}, other={"handler": "lower:Counter"})
    async with running(root, watch=True) as fleet:
        fleet.register(Upper())
        await until(lambda: any(each.name == "upper" for each in fleet.agents))
        assert await ask_agent(fleet, "low", "Hi") == "hi"
        mark = fleet.hub.seq
        (root / "helper.py").write_text("def shown(text):\n    return text.lower() + '!'\n")
        await until(lambda: "low" in _reloaded(fleet, mark))
        assert await ask_agent(fleet, "low", "Hi") == "hi!"
        mark = fleet.hub.seq
        (root / "helper.py").write_text("def shown(text):\n    return text.lower() +\n")
        await until(lambda: _reloaded(fleet, mark).get("low") == "failed")
        assert await ask_agent(fleet, "low", "Hi") == "hi!"
        # One that was registered is none of the files' business.
        mark = fleet.hub.seq
        entries = yaml.safe_load((root / "agents.yaml").read_text())
        del entries["agents"]["other"]
        (root / "agents.yaml").write_text(yaml.safe_dump(entries, sort_keys=False))
        await until(lambda: {each.name for each in fleet.agents} == {"low", "upper"})
        assert await ask_agent(fleet, "upper", "Hi") == "HI"
        assert "upper" not in _reloaded(fleet, mark)


def _reloaded(fleet: Fleet, since: int) -> dict[str, str]:
    found = fleet.hub.since(since).events
    return {event.agent: event.outcome for event in found if isinstance(event, Reloaded)}


@pytest.mark.slow
async def test_a_fleet_of_handlers_starts_without_fast_agent(tmp_path: Path) -> None:
    root = handlers(tmp_path, low={"handler": "lower:answer"})
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from pallas.config import load_project\n"
        "from pallas.fleet.fleet import Fleet\n"
        "from pallas.model import RunRequest\n"
        "async def main():\n"
        "    fleet = Fleet(load_project(Path(sys.argv[1]), {**os.environ}), dev=True)\n"
        "    await fleet.start()\n"
        "    print((await fleet.kernel.run(RunRequest('low', 'HI'))).text)\n"
        "    await fleet.stop()\n"
        "asyncio.run(main())\n"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'fast_agent'))\n"
    )
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program, str(root)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == ["hi", "[]"], done.stderr


async def test_the_page_begins_with_a_handler_that_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "handlers.md").read_text("utf-8")
    code, entry = re.findall(r"```(?:python|yaml)\n(.*?)```", page, re.DOTALL)[:2]
    assert len(code.splitlines()) <= 10
    root = handlers(tmp_path)
    (root / "handlers").mkdir()
    (root / "handlers" / "upper.py").write_text(code)
    entry = re.sub(r", port: \d+", "", entry)
    (root / "agents.yaml").write_text(f"name: test\nport: {free_ports(1)[0]}\n{entry}")
    async with running(root) as fleet:
        assert await ask_agent(fleet, "upper", "hello") == "HELLO"
        assert fleet.agents[0].snapshot().capabilities == ("shouting",)


async def test_what_is_registered_is_seen_by_the_next_call(tmp_path: Path) -> None:
    # DR-5
    async with bare(tmp_path) as fleet:
        fleet.register(Upper(), capabilities=("loud",))
        await fleet.start()
        assert await ask_agent(fleet, "upper", "Hi") == "HI"
        directory = fleet.surfaces.directory
        assert [each.id for each in directory.infos(ANONYMOUS)] == ["upper"]

        class Later(Upper):
            """Comes later."""

            id = "later"

        await fleet.register(Later("late"))
        assert directory.resolve("later", ANONYMOUS) == "later"
        assert await ask_agent(fleet, "later", "Hi") == "late"
        assert [each.id for each in directory.infos(ANONYMOUS, "shouting")] == ["later"]
        assert [each.id for each in directory.infos(ANONYMOUS, "loud")] == ["upper"]
        async with client(fleet, "later") as caller:
            assert await ask(caller, "hello") == "late"
        await fleet.unregister("later")
        assert [each.id for each in directory.infos(ANONYMOUS)] == ["upper"]
        with pytest.raises(Fault, match="Agent not found: later"):
            await ask_agent(fleet, "later", "Hi")


async def test_the_default_agent_is_used_though_it_was_registered_second(tmp_path: Path) -> None:
    # DR-6 (X14)
    async with bare(tmp_path, default_agent="second") as fleet:
        for name in ("first", "second"):
            handler = Upper(f"{name} speaks")
            handler.id = name
            fleet.register(handler)
        await fleet.start()
        session = await fleet.surfaces.sessions.create(None, ANONYMOUS)
        assert session.agent == "second"
        assert (await fleet.surfaces.sessions.prompt(session.id, "hi", ANONYMOUS)).text == "second speaks"
        assert (await fleet.surfaces.sessions.delegate("hi", ANONYMOUS)).agent == "second"


async def test_a_handler_stands_before_a_worker_of_its_id_until_it_is_taken_out(tmp_path: Path) -> None:
    # DR-4
    program = WorkerConfig(("python", str(SIMPLE)), tmp_path)
    async with bare(tmp_path) as fleet:
        fleet.register_worker("upper", program)
        await fleet.start()
        assert await ask_agent(fleet, "upper", "Hi") == "1:Hi"
        assert shadows(fleet, "upper") == ()
        await fleet.register(Upper())
        assert await ask_agent(fleet, "upper", "Hi") == "HI"
        assert [each.id for each in fleet.surfaces.directory.infos(ANONYMOUS)] == ["upper"]
        assert shadows(fleet, "upper") == ("worker",)
        told = [text for text in notices(fleet) if "more than once" in text]
        assert told == [
            "upper exists more than once: the handler of the program answers, before the worker of the "
            "program, which waits"
        ]
        await fleet.unregister("upper")
        assert await ask_agent(fleet, "upper", "Hi") == "1:Hi"
        assert shadows(fleet, "upper") == ()


async def test_a_file_that_declares_a_registered_id_goes_first_until_it_lets_go_of_it(tmp_path: Path) -> None:
    root = handlers(tmp_path, low={"handler": "lower:answer"})
    alone = (root / "agents.yaml").read_text()
    both = yaml.safe_load(alone)
    both["agents"]["upper"] = {"kind": "handler", "handler": "lower:answer"}
    async with running(root, watch=True) as fleet:
        await fleet.register(Upper())
        assert await ask_agent(fleet, "upper", "Hi") == "HI"
        (root / "agents.yaml").write_text(yaml.safe_dump(both, sort_keys=False))
        await until(lambda: fleet.project.agents["upper"].where.file == "agents.yaml")
        await until(lambda: fleet.agents[-1].config.where.file == "agents.yaml")
        assert await ask_agent(fleet, "upper", "Hi") == "hi"
        assert any("upper exists more than once" in text for text in notices(fleet))
        (root / "agents.yaml").write_text(alone)
        await until(lambda: fleet.agents[-1].config.where.file == "code")
        assert await ask_agent(fleet, "upper", "Hi") == "HI"
        assert "upper exists only once again" in notices(fleet)


async def test_what_is_saved_before_the_watch_of_the_files_began_is_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = handlers(tmp_path, low={"handler": "lower:answer"})
    alone = (root / "agents.yaml").read_text()
    both = yaml.safe_load(alone)
    both["agents"]["upper"] = {"kind": "handler", "handler": "lower:answer"}
    started = threading.Event()
    found = file_watcher.folders_of

    def slow(*folders: Any) -> Any:
        """Whoever saves is quicker than a busy machine."""
        if started.wait(60) and (root / "agents.yaml").read_text() == alone:
            (root / "agents.yaml").write_text(yaml.safe_dump(both, sort_keys=False))
        return found(*folders)

    monkeypatch.setattr(file_watcher, "folders_of", slow)
    async with running(root, watch=True) as fleet:
        started.set()
        await until(lambda: len(fleet.agents) == 2)
        await until(lambda: fleet.agents[-1].state is AgentState.READY)
        assert await ask_agent(fleet, "upper", "HI") == "hi"


async def test_who_registers_an_id_twice_is_refused_unless_it_replaces(tmp_path: Path) -> None:
    root = handlers(tmp_path, low={"handler": "lower:answer"})
    async with running(root) as fleet:
        await fleet.register(Upper("one"))
        with pytest.raises(Fault, match="upper is there in this process already") as fault:
            fleet.register(Upper("two"))
        assert fault.value.type is FaultType.CONFIG
        assert await ask_agent(fleet, "upper", "Hi") == "one"
        await fleet.register(Upper("two"), replace=True)
        assert await ask_agent(fleet, "upper", "Hi") == "two"
        before = fleet.agents[0].url

        class Low(Upper):
            id = "low"

        with pytest.raises(Fault, match=r"already \(agents\.yaml:4\)"):
            fleet.register(Low())
        await fleet.register(Low("instead"), replace=True)
        assert await ask_agent(fleet, "low", "Hi") == "instead"
        assert (fleet.agents[0].name, fleet.agents[0].url) == ("low", before)
        await fleet.unregister("low")
        assert await ask_agent(fleet, "low", "HI") == "hi"
        with pytest.raises(Fault, match="low is not registered"):
            fleet.unregister("low")


async def test_names_are_those_of_all_agents(tmp_path: Path) -> None:
    root = handlers(tmp_path, a_b={"handler": "lower:answer"})
    fleet = Fleet(load_project(root, {**os.environ}), dev=True)
    for name, problem in {
        "agent-x": "reserved",
        "system": "reserved",
        "system.log": "reserved",
        "Upper Case": "is not a name",
        "": "is missing",
        "a-b": "is published as a-b, and so is a_b",
    }.items():
        handler = Upper()
        handler.id = name
        with pytest.raises(Fault, match=problem) as fault:
            fleet.register(handler)
        assert fault.value.type is FaultType.CONFIG
    with pytest.raises(Fault, match="has neither prompt nor stream"):
        # DR-26
        fleet.register(type("Idle", (), {"id": "idle"})())
    with pytest.raises(Fault, match=r"has no id; register an object of it: Upper\(\)"):
        fleet.register(Upper)
    await fleet.stop()
    with pytest.raises(Fault, match="the fleet is stopped"):
        fleet.register(Upper())
    one = Fleet(load_project(root, {**os.environ}), dev=True, only="a_b")
    with pytest.raises(Fault, match="serves only one agent"):
        one.register(Upper())
    await one.stop()


async def test_sessions_of_a_handler_are_told_to_it_and_fail_as_it_does(tmp_path: Path) -> None:
    # DR-27
    told: list[str] = []

    class Hooks(Upper):
        """Shouts, and remembers who it is for."""

        async def prompt(self, request: PromptRequest) -> str:
            if request.session is not None and request.text == "who":
                return f"{request.session.metadata['team']} {len(request.history)}"
            return await super().prompt(request)

        async def on_session_create(self, session: Session) -> None:
            if session.metadata.get("refuse"):
                raise ValueError("no")
            told.append(f"create {session.agent}")

        async def on_session_close(self, session: Session, reason: str) -> None:
            told.append(f"close {reason}")
            raise ValueError("cannot")

    async with bare(tmp_path) as fleet:
        fleet.register(Hooks())
        await fleet.start()
        sessions = fleet.surfaces.sessions
        with pytest.raises(Fault) as refused:
            await sessions.create("upper", ANONYMOUS, metadata={"refuse": True})
        assert refused.value.type is FaultType.UPSTREAM
        assert sessions.active == 0
        session = await sessions.create("upper", ANONYMOUS, metadata={"team": "blue"})
        assert session.status == "active"
        assert (await sessions.prompt(session.id, "hi", ANONYMOUS)).text == "HI"
        assert (await sessions.prompt(session.id, "who", ANONYMOUS)).text == "blue 2"
        assert (await sessions.status(session.id, ANONYMOUS)).status == "idle"
        # DR-9
        with pytest.raises(Fault, match="upper failed; the log"):
            await sessions.prompt(session.id, "fail", ANONYMOUS)
        assert (await sessions.status(session.id, ANONYMOUS)).status == "failed"
        assert await sessions.close(session.id, ANONYMOUS, "done with it")
        assert sessions.active == 0
    assert told == ["create upper", "close done with it"]


async def test_a_cancelled_session_ends_what_it_asked_and_tells_the_handler(tmp_path: Path) -> None:
    # DR-16
    told: list[str] = []
    reached = asyncio.Event()

    class Slow(Upper):
        async def prompt(self, request: PromptRequest) -> str:
            if request.text != "wait":
                return await super().prompt(request)
            reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                told.append("ended")
            return "never"

        async def cancel(self, session: Session) -> None:
            told.append(f"cancel {session.metadata['team']}")

    async with bare(tmp_path) as fleet:
        fleet.register(Slow())
        await fleet.start()
        sessions = fleet.surfaces.sessions
        session = await sessions.create("upper", ANONYMOUS, metadata={"team": "blue"})
        await sessions.cancel(session.id, ANONYMOUS)  # nothing runs: harmless
        before = list(told)
        run = asyncio.create_task(sessions.prompt(session.id, "wait", ANONYMOUS))
        await reached.wait()
        assert await sessions.cancel(session.id, ANONYMOUS)
        assert (await run).stop_reason == "cancelled"
        await until(lambda: sorted(told[len(before) :]) == ["cancel blue", "ended"])
        assert (await sessions.prompt(session.id, "on", ANONYMOUS)).text == "ON"


async def test_a_registration_that_comes_to_nothing_says_so_and_the_fleet_goes_on(tmp_path: Path) -> None:
    async with bare(tmp_path) as fleet:
        fleet.register(Upper())
        await fleet.start()
        broken = WorkerConfig(("python", "-c", "raise SystemExit('no licence')"), tmp_path)
        with pytest.raises(Fault, match=r"^lost cannot answer: "):
            await fleet.register_worker("lost", broken)
        assert await ask_agent(fleet, "upper", "Hi") == "HI"
        heard: list[Event] = list(fleet.hub.since(0).events)
        assert any(getattr(event, "agent", "") == "lost" for event in heard)
        await fleet.unregister("lost")
        assert [each.name for each in fleet.agents] == ["upper"]
