"""One agent stopped, started, restarted and reloaded by hand while callers of both eras go on."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from support import pallas_process
from support.executors import FakeExecutor
from support.live import ECHO, ERAS, agent_module, ask, client, control, running, verbs_over, write_project
from support.ports import free_ports
from support.project_modules import module_at
from support.turnstile import turnstile
from support.waiting import until

from pallas.config import AgentConfig, Project, load_project
from pallas.executors import Executor
from pallas.fleet.fleet import Fleet
from pallas.model import AgentChanged, AgentState, Fault, FaultType, HealthStatus, Notice, Verb

ERA = pytest.mark.parametrize("era", ERAS)


def notices(fleet: Fleet) -> list[str]:
    return [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]


def counts(fleet: Fleet) -> tuple[int, int]:
    """How often the first agent was restarted, and how often it was reloaded."""
    agent = fleet.snapshot().agents[0]
    return agent.restarts, agent.reloads


def states(fleet: Fleet, after: int = 0) -> list[AgentState]:
    return [event.state for event in fleet.hub.since(after).events if isinstance(event, AgentChanged)]


def state(fleet: Fleet, name: str = "one") -> AgentState:
    agent = fleet.snapshot().agent(name)
    assert agent is not None
    return agent.state


def code(root: Path, text: str, name: str = "one") -> None:
    (root / "agents" / f"{name}.py").write_text(text)


def answering(text: str) -> str:
    """An agent whose instruction says which version it is; the passthrough model repeats the message."""
    return agent_module("one").replace("You are one.", text)


def instruction(fleet: Fleet) -> str:
    executor = fleet.agents[0].executor
    return executor.info.instruction if executor is not None else ""


@ERA
async def test_a_stopped_agent_keeps_its_port_says_so_and_can_be_started_again(
    tmp_path: Path, era: str
) -> None:
    async with (
        running(write_project(tmp_path, {"one": None})) as fleet,
        client(fleet, "one", era=era) as caller,
    ):
        assert await ask(caller, "before") == "before"
        mark = fleet.hub.seq
        await control(fleet, "one", "stop")
        assert states(fleet, mark) == [AgentState.STOPPING, AgentState.STOPPED]
        health = await caller.call_tool("get_health", {})
        assert "stopped by hand" in health.content[0].text
        assert fleet.snapshot().agents[0].health.status is HealthStatus.ERROR
        refused = await caller.call_tool("send_message", {"message": "x"})
        assert refused.is_error
        assert "stopped by hand" in refused.content[0].text
        assert "start it" in refused.content[0].text
        mark = fleet.hub.seq
        await control(fleet, "one", "start")
        assert states(fleet, mark) == [AgentState.IMPORTING, AgentState.CONNECTING, AgentState.READY]
        assert await ask(caller, "after") == "after"
        assert counts(fleet) == (1, 0)
        assert fleet.snapshot().agents[0].health.status is HealthStatus.OK


@ERA
async def test_a_run_in_flight_is_cancelled_when_its_agent_stops_and_its_caller_is_told(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas.fleet.agent.DRAIN_SECONDS", 0.2)
    root = write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO)
    async with running(root) as fleet, client(fleet, "one", era=era) as caller:
        call = asyncio.create_task(
            caller.call_tool("send_message", {"message": '***CALL_TOOL echo__slow {"text": "x"}'})
        )
        await until(lambda: fleet.snapshot().agents[0].runs_active == 1)
        children = pallas_process.below()
        await control(fleet, "one", "stop")
        result = await asyncio.wait_for(call, 60)
        assert result.is_error
        assert "stopped by hand" in result.content[0].text
        assert fleet.snapshot().agents[0].runs_active == 0
        await until(lambda: not any(child.is_running() for child in children))
        await control(fleet, "one", "start")
        assert await ask(caller, "again") == "again"


async def test_a_run_that_ends_in_time_is_answered_though_its_agent_is_stopping(tmp_path: Path) -> None:
    gate = asyncio.Event()
    quick = FakeExecutor()

    async def waiting(turn: Any, emit: Any) -> Any:
        await gate.wait()
        return await FakeExecutor().answer(turn, emit)

    quick.answer = waiting
    async with (
        faked(write_project(tmp_path, {"one": None}), [quick]) as fleet,
        client(fleet, "one") as caller,
    ):
        call = asyncio.create_task(ask(caller, "hello"))
        await until(lambda: fleet.snapshot().agents[0].runs_active == 1)
        fleet.control("one", "stop")
        await until(lambda: state(fleet) is AgentState.STOPPING)
        gate.set()
        assert await call == "0:hello"
        await verbs_over(fleet, "one")
        assert state(fleet) is AgentState.STOPPED


@ERA
async def test_a_conversation_survives_a_restart_and_a_reload(tmp_path: Path, era: str) -> None:
    root = write_project(tmp_path, {"one": None})
    async with running(root) as fleet, client(fleet, "one", era=era) as caller:
        await ask(caller, "first", conversation_id="c")
        await control(fleet, "one", "restart")
        await ask(caller, "second", conversation_id="c")
        await control(fleet, "one", "reload")
        await ask(caller, "third", conversation_id="c")
        prompt = await caller.get_prompt("one_history", {"conversation_id": "c"})
        said = [message.content.text for message in prompt.messages if message.role == "user"]
        assert said == ["first", "second", "third"]
        assert counts(fleet) == (1, 1)


@ERA
async def test_a_reload_takes_new_code_and_what_that_imports_of_the_project(tmp_path: Path, era: str) -> None:
    source = "from agents.words import TEXT\n" + agent_module("one").replace('"You are one."', "TEXT")
    root = write_project(tmp_path, {"one": source}, files={"agents/words.py": "TEXT = 'version a'\n"})
    async with running(root) as fleet, client(fleet, "one", era=era) as caller:
        assert instruction(fleet) == "version a"
        # Same size and within the same second: compiled files look current.
        (root / "agents" / "words.py").write_text("TEXT = 'version b'\n")
        mark = fleet.hub.seq
        await control(fleet, "one", "reload")
        assert instruction(fleet) == "version b"
        assert set(states(fleet, mark)) == {AgentState.READY}
        assert await ask(caller, "hello") == "hello"
        assert fleet.agents[0].predecessors == 0


async def test_a_broken_module_leaves_the_old_agent_answering_and_says_where(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": answering("good"), "two": None})
    async with running(root) as fleet, client(fleet, "one") as caller:
        code(root, answering("bad") + "\n\nraise ValueError('not today')\n")
        await control(fleet, "one", "reload")
        assert state(fleet) is AgentState.READY
        assert instruction(fleet) == "good"
        assert await ask(caller, "still") == "still"
        (text,) = notices(fleet)
        assert "reload failed: agents/one.py:" in text
        assert "ValueError: not today" in text
        assert "the previous version still answers" in text
        assert "not today" not in Path(module_at(root, "agents.one").__file__ or "").name
        assert module_at(root, "agents.one").fast.agents["one"]["config"].instruction == "good"
        code(root, "this is not python(")
        await control(fleet, "one", "reload")
        assert "agents/one.py:1: SyntaxError" in notices(fleet)[-1]
        code(root, answering("mended"))
        await control(fleet, "one", "reload")
        assert instruction(fleet) == "mended"
        assert counts(fleet) == (0, 1)


async def test_reload_repairs_an_agent_that_could_not_start(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": "import nowhere_at_all\n"})
    async with running(root) as fleet, client(fleet, "one") as caller:
        assert state(fleet) is AgentState.ERROR
        await control(fleet, "one", "reload")
        assert state(fleet) is AgentState.ERROR
        assert "could not be started: agents/one.py:1" in notices(fleet)[-1]
        code(root, agent_module("one"))
        await control(fleet, "one", "reload")
        assert state(fleet) is AgentState.READY
        assert fleet.snapshot().agents[0].error == ""
        assert await ask(caller, "hello") == "hello"


async def test_the_configuration_is_read_anew_and_a_mistake_in_it_changes_nothing(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=ECHO)
    async with running(root) as fleet, client(fleet, "one") as caller:
        path = root / "agents.yaml"
        good = yaml.safe_load(path.read_text())
        port, other_ports = good["agents"]["one"]["port"], free_ports(2)
        path.write_text(path.read_text() + "nonsense: 1\n")
        for verb in ("reload", "restart"):
            await control(fleet, "one", verb)  # type: ignore[arg-type]
            assert "agents.yaml:" in notices(fleet)[-1]
            assert state(fleet) is AgentState.READY
        good["agents"]["one"] |= {"title": "Another", "description": "Other words", "port": other_ports[0]}
        path.write_text(yaml.safe_dump(good, sort_keys=False))
        await control(fleet, "one", "reload")
        agent = fleet.snapshot().agents[0]
        assert (agent.title, agent.port) == ("Another", port)
        assert f"its port stays {port}" in notices(fleet)[-1]
        assert fleet.project.agents["one"].title == "Another"
        listed = await caller.list_tools(cache_mode="bypass")
        assert "Other words" in (listed.tools[0].description or "")
        config = root / "fastagent.config.yaml"
        settings = yaml.safe_load(config.read_text())
        settings["mcp"]["servers"]["other"] = settings["mcp"]["servers"]["echo"]
        config.write_text(yaml.safe_dump(settings))
        code(root, agent_module("one", ("echo", "other")))
        await control(fleet, "one", "reload")
        assert [each.name for each in fleet.snapshot().agents[0].downstreams] == ["echo", "other"]
        del good["agents"]["one"]
        good["agents"]["two"] = {"module": "agents.one", "port": other_ports[1]}
        path.write_text(yaml.safe_dump(good, sort_keys=False))
        await control(fleet, "one", "reload")
        assert "no longer has this agent" in notices(fleet)[-1]
        assert await ask(caller, "hello") == "hello"


async def test_a_card_is_read_anew(tmp_path: Path) -> None:
    card = "---\nname: one\ntype: agent\n---\nVersion {}.\n"
    root = write_project(
        tmp_path,
        {"one": None},
        keys={"one": {"module": None, "card": "one.md"}},
        files={"one.md": card.format("a")},
    )
    topology = yaml.safe_load((root / "agents.yaml").read_text())
    topology["agents"]["one"].pop("module", None)
    (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
    async with running(root) as fleet:
        assert "Version a." in instruction(fleet)
        (root / "one.md").write_text(card.format("b"))
        await control(fleet, "one", "reload")
        assert "Version b." in instruction(fleet)


async def test_verbs_of_one_agent_come_one_after_the_other_and_others_are_free(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": None, "two": None})
    async with running(root) as fleet:
        fleet.control("one", "reload")
        fleet.control("one", "stop")
        fleet.control("two", "stop")
        await verbs_over(fleet, "one")
        await verbs_over(fleet, "two")
        assert notices(fleet) == ["one: stop was not done: reload is under way; ask again when that is over"]
        assert (state(fleet, "one"), state(fleet, "two")) == (AgentState.READY, AgentState.STOPPED)
        fleet.control("two", "stop")
        fleet.control("two", "reload")
        fleet.control("one", "start")
        fleet.control("three", "start")
        fleet.control("one", "explode")  # type: ignore[arg-type]
        assert [text.partition(": ")[2] for text in notices(fleet)[1:4]] == [
            "stop was not done: it is stopped already",
            "reload was not done: it is stopped; start it, which reads its files again",
            "start was not done: it is running already",
        ]
        assert "no agent three; this fleet has one, two" in notices(fleet)[4]
        assert "'explode'" in notices(fleet)[5]


@pytest.mark.parametrize("verb", ["stop", "restart"])
async def test_of_two_agents_of_one_module_one_ends_and_the_other_goes_on(tmp_path: Path, verb: Verb) -> None:
    async with turnstile() as stile:
        root = write_project(
            tmp_path,
            {"one": agent_module("one", ("stile",)), "two": None},
            keys={"two": {"module": "agents.one"}},
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        )
        async with running(root) as fleet, client(fleet, "two") as caller, client(fleet, "one") as other:
            assert await ask(other, "hello") == "hello"
            waits = asyncio.create_task(ask(caller, '***CALL_TOOL stile__go {"who": "two"}'))
            await until(lambda: stile.arrived == ["two"])
            # An instance of the second is the last that was made.
            assert await ask(caller, "another instance") == "another instance"
            await control(fleet, "one", verb)
            assert not waits.done()
            stile.open.set()
            assert "two went through" in await waits
            assert await ask(caller, "still there") == "still there"
            stile.open.clear()
            whos = [f"new{number}" for number in range(5)]  # each needs an instance of its own, made now
            talks = [
                asyncio.create_task(ask(caller, f'***CALL_TOOL stile__go {{"who": "{who}"}}')) for who in whos
            ]
            await until(lambda: len(stile.arrived) == 6 or any(each.done() for each in talks))
            stile.open.set()
            answers = await asyncio.gather(*talks)
            assert all("went through" in answer for answer in answers), answers


@contextlib.asynccontextmanager
async def faked(root: Path, executors: list[FakeExecutor]) -> AsyncIterator[Fleet]:
    """A fleet whose executors are these, one after the other."""

    async def make(project: Project, config: AgentConfig) -> Executor:
        return executors.pop(0)

    before = Path.cwd()
    fleet = Fleet(load_project(root), dev=True, make_executor=make)
    try:
        await fleet.start()
        yield fleet
    finally:
        await fleet.stop()
        os.chdir(before)


class Noted(FakeExecutor):
    """Notes whether it was closed; ``start`` does as it is told."""

    closed = 0
    reached = False
    failure: Exception | None = None
    hangs = False

    async def start(self) -> None:
        self.reached = True
        if self.failure is not None:
            raise self.failure
        if self.hangs:
            await asyncio.Event().wait()

    async def close(self, timeout_s: float) -> None:
        self.closed += 1


async def test_an_executor_that_did_not_get_ready_is_closed(tmp_path: Path) -> None:
    first, good, bad, hanging = Noted(), Noted(), Noted(), Noted()
    first.failure = Fault(FaultType.CONFIG, "no start")
    bad.failure = RuntimeError("no reload")
    hanging.hangs = True
    async with faked(write_project(tmp_path, {"one": None}), [first, good, bad, hanging]) as fleet:
        assert (state(fleet), first.closed) == (AgentState.ERROR, 1)
        await control(fleet, "one", "start")
        assert (state(fleet), good.closed) == (AgentState.READY, 0)
        await control(fleet, "one", "reload")
        assert (state(fleet), good.closed, bad.closed) == (AgentState.READY, 0, 1)
        fleet.control("one", "reload")
        await until(lambda: hanging.reached)
    assert (good.closed, hanging.closed) == (1, 1)  # what was under way ends with the fleet
    assert state(fleet) is AgentState.STOPPED


async def test_a_verb_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, hanging, again = Noted(), Noted(), Noted()
    hanging.hangs = again.hangs = True
    async with faked(write_project(tmp_path, {"one": None}), [good, hanging, again]) as fleet:
        monkeypatch.setattr("pallas.fleet.agent_control.DEADLINE", 0.2)
        await control(fleet, "one", "reload")
        assert "reload failed: it was not done within" in notices(fleet)[-1]
        assert (state(fleet), good.closed, hanging.closed) == (AgentState.READY, 0, 1)
        await control(fleet, "one", "restart")
        assert (state(fleet), good.parked, again.closed) == (AgentState.ERROR, 1, 1)


async def test_runs_in_flight_finish_on_the_executor_that_began_them(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def waiting(turn: Any, emit: Any) -> Any:
        await gate.wait()
        return await FakeExecutor().answer(turn, emit)

    executors = [Noted(waiting) for _ in range(6)]
    made = list(executors)
    async with (
        faked(write_project(tmp_path, {"one": None}), executors) as fleet,
        client(fleet, "one") as caller,
    ):
        calls = []
        for number in range(4):
            calls.append(asyncio.create_task(ask(caller, str(number))))
            await until(lambda number=number: len(made[number].turns) == 1)
            await control(fleet, "one", "reload")
        assert fleet.agents[0].predecessors == 4
        await control(fleet, "one", "reload")
        assert "4 earlier versions still answer runs" in notices(fleet)[-1]
        assert [each.closed for each in made] == [0] * 6
        gate.set()
        assert await asyncio.gather(*calls) == ["0:0", "0:1", "0:2", "0:3"]
        await until(lambda: fleet.agents[0].predecessors == 0)
        await until(lambda: made[3].parked)  # the one to go back to
        assert [each.closed for each in made] == [1, 1, 1, 0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("times", "servers"), [(8, ()), (3, ("echo",))])
async def test_no_call_fails_while_an_agent_is_reloaded_again_and_again(
    tmp_path: Path, times: int, servers: tuple[str, ...]
) -> None:
    root = write_project(tmp_path, {"one": agent_module("one", servers)}, config=ECHO)
    async with running(root) as fleet:
        here = psutil.Process()
        others = len(here.children(recursive=True))
        files, tasks = here.num_fds(), len(asyncio.all_tasks())
        answered = [0] * 4
        stop = asyncio.Event()

        async def calling(number: int) -> None:
            async with client(fleet, "one", era=ERAS[number % 2]) as caller:
                while not stop.is_set():
                    turn = answered[number]
                    assert (
                        await ask(caller, f"{number}-{turn}", conversation_id=f"c{number}")
                        == f"{number}-{turn}"
                    )
                    if servers and turn % 10 == 0:
                        assert "echo:tool" in await ask(caller, '***CALL_TOOL echo__echo {"text": "tool"}')
                    answered[number] += 1
                prompt = await caller.get_prompt("one_history", {"conversation_id": f"c{number}"})
                said = [each.content.text for each in prompt.messages if each.role == "user"]
                assert said == [f"{number}-{turn}" for turn in range(answered[number])]

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(calling(number))
            for number in range(times):
                before = list(answered)
                code(root, agent_module("one", servers).replace("You are one.", f"Version {number}."))
                await control(fleet, "one", "reload")
                assert instruction(fleet) == f"Version {number}."
                await until(lambda before=before: all(map(int.__gt__, answered, before)), timeout=60)
            stop.set()
        assert notices(fleet) == []
        assert counts(fleet) == (0, times)
        await until(lambda: fleet.agents[0].predecessors == 0, timeout=60)
        # One of each for an instance of the last executor, as many as there are callers at most.
        most = len(answered) * len(servers)
        await until(lambda: len(here.children(recursive=True)) <= others + most, timeout=60)
        await until(lambda: here.num_fds() <= files + 4 + 4 * most, timeout=60)
        await until(lambda: len(asyncio.all_tasks()) <= tasks + 4 + 6 * most, timeout=60)


@pytest.mark.slow
async def test_restarts_under_callers_refuse_with_a_word_and_nothing_else(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": None})
    async with running(root) as fleet:
        stop = asyncio.Event()
        answers: list[str] = []

        async def calling(era: str) -> None:
            async with client(fleet, "one", era=era) as caller:
                while not stop.is_set():
                    result = await caller.call_tool("send_message", {"message": "hi", "conversation_id": era})
                    answers.append(result.content[0].text if result.is_error else "")

        async with asyncio.TaskGroup() as group:
            for era in ERAS:
                group.create_task(calling(era))
            for _ in range(10):
                before = answers.count("")
                await control(fleet, "one", "restart")
                await until(lambda before=before: answers.count("") > before)
            stop.set()
        refusals = {text for text in answers if text}
        assert all("try again in a moment" in text or "being restarted" in text for text in refusals), (
            refusals
        )
        assert counts(fleet) == (10, 0)
