"""Sessions and who can be found, in a fleet that runs: the offline model, handlers, a worker, a ledger."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from support.bridged import refused, tell
from support.clocks import expire
from support.live import ERAS, IN_A_FILE, agent_module, ask, client, module_fleet, running
from support.offline import model_record, offline_project
from support.virtual import virtual
from support.waiting import until
from support.workers import SIMPLE

from pallas.config.kinds import WorkerConfig
from pallas.fleet.fleet import Fleet
from pallas.handlers import PromptRequest, Session
from pallas.model import ANONYMOUS, AgentSnapshot, Fault, FaultType, RunStarted, TextDelta, ToolEvent

SCRIPT = """
rules:
  - when: {last: user, text: slow tool}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user, text: slow model}
    say: "LONG"
    pace: 0.2
  - when: {last: user}
    say: "turn {{ turns }}"
""".replace("LONG", "word by " * 200)
pytestmark = pytest.mark.asyncio(loop_scope="module")


class Upper:
    """A handler that says it louder, and hangs when it is asked to."""

    capabilities = ("shouting",)

    def __init__(self, name: str) -> None:
        self.id = name
        self.told: list[tuple[str, ...]] = []
        self.hangs = asyncio.Event()
        self.cancelled = False

    async def prompt(self, request: PromptRequest) -> str:
        if request.text == "break":
            raise RuntimeError("kaput")
        if request.text == "hang":
            self.hangs.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        return request.text.upper()

    async def on_session_create(self, session: Session) -> None:
        self.told.append(("opened", session.id))

    async def on_session_close(self, session: Session, reason: str) -> None:
        self.told.append(("closed", session.id, reason))

    async def cancel(self, session: Session) -> None:
        self.told.append(("cancelled", session.id))


@module_fleet(database=IN_A_FILE)
def fleet(folder: Path) -> Path:
    return offline_project(
        folder / "p",
        {"boss": agent_module("boss", ("echo",))},
        SCRIPT,
        top={"sessions": {"reap_every": 1}},
        keys={"boss": {"capabilities": ["planning"]}},
    )


@pytest.fixture
def limits(fleet: Fleet) -> Iterator[Any]:
    """Sets limits of sessions, until the test is over."""
    before = fleet.project.sessions

    def now(**changed: Any) -> None:
        fleet.context.current.adopt(replace(fleet.project, sessions=before.model_copy(update=changed)))

    yield now
    now()


@contextmanager
def no_session_left(fleet: Fleet) -> Iterator[None]:
    """Whatever comes of it, nothing of it stays."""
    yield
    assert fleet.surfaces.sessions.active == 0, fleet.surfaces.sessions.records()


def shown(fleet: Fleet, agent: str) -> AgentSnapshot:
    found = fleet.snapshot().agent(agent)
    assert found is not None
    return found


async def fault_of(work: Any) -> Fault:
    with pytest.raises(Fault) as caught:
        await work
    return caught.value


async def test_a_session_expires_by_itself_and_its_thread_is_answered_by_all_other_ways(
    fleet: Fleet, limits: Any
) -> None:
    # DR-13 C11
    sessions = fleet.surfaces.sessions
    made = await sessions.create("boss", ANONYMOUS)
    first = await sessions.prompt(made.id, "hello", ANONYMOUS)
    assert (first.text, (await sessions.status(made.id, ANONYMOUS)).thread) == ("turn 1", first.thread)
    assert shown(fleet, "boss").sessions == 1
    limits(idle=0.001)
    await until(lambda: shown(fleet, "boss").sessions == 0)
    fault = await fault_of(sessions.prompt(made.id, "again", ANONYMOUS))
    assert (fault.message, fault.data["ended"]) == (f"Session not found: {made.id}", "expired")
    async with client(fleet, "boss") as connected:
        assert await ask(connected, "again", conversation_id=first.thread) == "turn 2"
    base = fleet.registry_url.partition("/.well-known")[0]
    async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=60) as http:
        answer = await http.get(f"/api/v1/threads/{first.thread}/messages")
    assert answer.status_code == 200, answer.text
    assert all(each in answer.text for each in ("hello", "turn 1", "again", "turn 2"))


async def test_a_thread_that_is_deleted_meanwhile_is_told_and_followed_by_another(fleet: Fleet) -> None:
    sessions = fleet.surfaces.sessions
    with no_session_left(fleet):
        made = await sessions.create("boss", ANONYMOUS)
        first = await sessions.prompt(made.id, "hello", ANONYMOUS)
        base = fleet.registry_url.partition("/.well-known")[0]
        async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=60) as http:
            gone = await http.delete(f"/api/v1/threads/{first.thread}")
        assert gone.is_success, gone.text
        fault = await fault_of(sessions.prompt(made.id, "again", ANONYMOUS))
        assert (fault.data["reason"], fault.data["sessionValid"]) == ("not_found", True)
        second = await sessions.prompt(made.id, "again", ANONYMOUS)
        assert second.text == "turn 1"
        assert second.thread not in ("", first.thread)
        await sessions.close(made.id, ANONYMOUS)


@pytest.mark.parametrize("kind", ["slow tool", "slow model"])
async def test_cancelling_stops_the_model_and_its_tool_and_is_no_error(fleet: Fleet, kind: str) -> None:
    # DR-16 X19
    sessions = fleet.surfaces.sessions
    with no_session_left(fleet):
        made = await sessions.create("boss", ANONYMOUS)
        assert not await sessions.cancel(made.id, ANONYMOUS)
        since = fleet.hub.seq
        prompt = asyncio.create_task(sessions.prompt(made.id, kind, ANONYMOUS, listener=lambda event: None))
        wanted: Any = ToolEvent if kind == "slow tool" else TextDelta
        await until(lambda: any(isinstance(each, wanted) for each in fleet.hub.since(since).events))
        assert await sessions.cancel(made.id, ANONYMOUS)
        result = await prompt
        assert result.stop_reason == "cancelled"
        assert ("word" in result.text) == (kind == "slow model")
        await until(lambda: model_record(fleet).active == 0 and not fleet.kernel.in_flight)
        assert (await sessions.prompt(made.id, "go on", ANONYMOUS)).text.startswith("turn")
        await sessions.close(made.id, ANONYMOUS)


async def test_a_caller_that_gives_it_little_time_is_told_and_the_model_is_asked_no_more(
    fleet: Fleet,
) -> None:
    # DR-15 X16
    sessions = fleet.surfaces.sessions
    with no_session_left(fleet):
        work = asyncio.create_task(sessions.delegate("slow model", ANONYMOUS, agent="boss", timeout=600))
        await until(lambda: model_record(fleet).active)
        expire(fleet.kernel.in_flight)
        done = await work
        assert done.fault is not None
        assert (done.fault.type, done.fault.code, done.fault.retryable) == (FaultType.TIMEOUT, -32001, True)
        await until(lambda: model_record(fleet).active == 0 and not fleet.kernel.in_flight)


async def test_a_handler_that_hangs_is_cancelled_in_time_and_its_session_goes_on(fleet: Fleet) -> None:
    # DR-15
    sessions, upper = fleet.surfaces.sessions, Upper("upper")
    await fleet.register(upper)
    with no_session_left(fleet):
        made = await sessions.create("upper", ANONYMOUS)
        prompt = asyncio.create_task(sessions.prompt(made.id, "hang", ANONYMOUS, timeout=600))
        await upper.hangs.wait()
        expire(fleet.kernel.in_flight)
        fault = await fault_of(prompt)
        assert (fault.type, fault.data["sessionValid"], upper.cancelled) == (FaultType.TIMEOUT, True, True)
        assert (await sessions.prompt(made.id, "hi", ANONYMOUS)).text == "HI"
        await sessions.close(made.id, ANONYMOUS)
    await fleet.unregister("upper")


async def test_a_handler_that_raises_fails_its_session_which_is_opened_again(fleet: Fleet) -> None:
    # DR-9 DR-10
    sessions, upper = fleet.surfaces.sessions, Upper("upper")
    await fleet.register(upper)
    made = await sessions.create("upper", ANONYMOUS)
    fault = await fault_of(sessions.prompt(made.id, "break", ANONYMOUS))
    assert fault.data["sessionValid"] is False
    assert (await sessions.status(made.id, ANONYMOUS)).status == "failed"
    assert "resume" in (await fault_of(sessions.prompt(made.id, "hi", ANONYMOUS))).message
    again = await sessions.create("upper", ANONYMOUS, metadata={"resume": made.id})
    assert again.id == made.id
    assert (await sessions.prompt(made.id, "hi", ANONYMOUS)).text == "HI"
    hanging = asyncio.create_task(sessions.prompt(made.id, "hang", ANONYMOUS))
    await upper.hangs.wait()
    assert await sessions.cancel(made.id, ANONYMOUS)
    assert (await hanging).stop_reason == "cancelled"
    await fleet.unregister("upper")
    await until(lambda: sessions.active == 0)
    await until(lambda: upper.told[-1] == ("closed", made.id, "agent-gone"))
    assert [each[0] for each in upper.told] == ["opened", "closed", "opened", "cancelled", "closed"]


@pytest.mark.parametrize("era", ERAS)
async def test_callers_that_close_a_session_at_once_close_it_once(fleet: Fleet, era: str) -> None:
    # DR-12
    upper = Upper("upper")
    await fleet.register(upper)
    async with virtual(fleet, "/mcp", era=era) as one, virtual(fleet, "/mcp", era=era) as other:
        session = (await tell(one, "sessions_create", agentId="upper"))["sessionId"]
        doors = (one, other) * 5
        closing = [tell(door, "sessions_close", sessionId=session, reason="done") for door in doors]
        closed = {"closed": True, "sessionId": session}
        assert await asyncio.gather(*closing) == [closed] * len(doors)
        body = await refused(other, "sessions_status", sessionId=session)
        assert body["error"] == f"Session not found: {session}"
    await fleet.unregister("upper")
    assert upper.told == [("opened", session), ("closed", session, "done")]


async def test_who_is_registered_while_it_runs_is_found_by_the_next_look_and_stands_before_a_worker(
    fleet: Fleet,
) -> None:
    # DR-4 DR-5 DR-17
    directory, sessions = fleet.surfaces.directory, fleet.surfaces.sessions
    assert [each.id for each in directory.infos(ANONYMOUS)] == ["boss"]
    assert [each.id for each in directory.infos(ANONYMOUS, "planning")] == ["boss"]
    command = WorkerConfig(command=("python", str(SIMPLE)), cwd=fleet.project.root)
    await fleet.register_worker("twin", command, capabilities=("digging",))
    assert [each.id for each in directory.infos(ANONYMOUS)] == ["boss", "twin"]
    (found,) = directory.infos(ANONYMOUS, "digging")
    assert (found.id, found.kind, found.status) == ("twin", "worker", "ready")
    made = await sessions.create("twin", ANONYMOUS)
    assert made.expires_at == 0.0
    before = (await sessions.prompt(made.id, "hello", ANONYMOUS)).text
    assert before
    await fleet.register(Upper("twin"))
    await until(lambda: directory.infos(ANONYMOUS)[1].kind == "handler")
    (_, found) = directory.infos(ANONYMOUS)
    assert (found.id, found.kind, found.shadows) == ("twin", "handler", ("worker",))
    fault = await fault_of(sessions.prompt(made.id, "hello", ANONYMOUS))
    assert (fault.type, fault.data["sessionValid"]) == (FaultType.UPSTREAM, False)
    other = await sessions.delegate("hello", ANONYMOUS, agent="twin")
    assert other.result is not None
    assert other.result.text == "HELLO"
    await fleet.unregister("twin")
    await until(lambda: directory.infos(ANONYMOUS)[1].kind == "worker")
    await fleet.unregister("twin")
    await until(lambda: [each.id for each in directory.infos(ANONYMOUS)] == ["boss"])
    assert sessions.active == 0


async def test_a_worker_that_dies_is_told_and_nobody_else_answers_until_it_is_back(fleet: Fleet) -> None:
    # DR-17
    sessions = fleet.surfaces.sessions
    command = WorkerConfig(command=("python", str(SIMPLE)), cwd=fleet.project.root)
    await fleet.register_worker("digger", command)
    with no_session_left(fleet):
        made = await sessions.create("digger", ANONYMOUS)
        await sessions.prompt(made.id, "hello", ANONYMOUS)
        pid, since = shown(fleet, "digger").pid, fleet.hub.seq
        assert pid is not None
        psutil.Process(pid).kill()
        await until(lambda: shown(fleet, "digger").availability == "unavailable")
        fault = await fault_of(sessions.prompt(made.id, "hello", ANONYMOUS))
        assert (fault.type, fault.data["sessionValid"]) == (FaultType.TRANSPORT, True)
        runs = [each for each in fleet.hub.since(since).events if isinstance(each, RunStarted)]
        assert {each.agent for each in runs} <= {"digger"}
        await until(lambda: shown(fleet, "digger").availability == "ready")
        assert (await sessions.prompt(made.id, "hello", ANONYMOUS)).text
        await sessions.close(made.id, ANONYMOUS)
    await fleet.unregister("digger")


async def test_an_agent_is_busy_while_no_more_sessions_can_be_opened(fleet: Fleet, limits: Any) -> None:
    # DR-14 DR-31
    sessions, directory = fleet.surfaces.sessions, fleet.surfaces.directory
    limits(max=1)
    assert shown(fleet, "boss").availability == "ready"
    made = await sessions.create("boss", ANONYMOUS)
    assert (shown(fleet, "boss").availability, directory.infos(ANONYMOUS)[0].status) == ("busy", "busy")
    fault = await fault_of(sessions.create("boss", ANONYMOUS))
    assert fault.message == "Session capacity reached"
    assert (await sessions.prompt(made.id, "hi", ANONYMOUS)).text == "turn 1"
    await sessions.close(made.id, ANONYMOUS)
    assert shown(fleet, "boss").availability == "ready"


async def test_one_that_answers_as_many_as_it_can_is_busy(fleet: Fleet) -> None:
    # DR-31
    upper = Upper("upper")
    await fleet.register(upper, capacity=1)
    prompt = asyncio.create_task(fleet.surfaces.sessions.delegate("hang", ANONYMOUS, agent="upper"))
    await upper.hangs.wait()
    assert shown(fleet, "upper").availability == "busy"
    prompt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await prompt
    await until(lambda: shown(fleet, "upper").availability == "ready")
    await until(lambda: upper.told[-1][2] == "task-failed")
    await fleet.unregister("upper")


async def test_whoever_answers_hears_that_its_sessions_end_with_the_fleet(tmp_path: Any) -> None:
    upper = Upper("upper")
    offline_project(tmp_path, {"boss": agent_module("boss")}, SCRIPT)
    async with running(tmp_path) as fleet:
        await fleet.register(upper)
        made = await fleet.surfaces.sessions.create("upper", ANONYMOUS)
    assert upper.told == [("opened", made.id), ("closed", made.id, "shutdown")]
