"""The bridge of a fleet at ``/mcp`` of its port: eight tools, in both eras, and what goes wrong with them."""

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from support.bridged import TOOLS, bridged, kind_of, refused, tell
from support.granted import TOKENS, auth, rules
from support.live import ERAS, agent_module, ask, client, module_fleet, running, write_project
from support.ports import free_ports
from support.virtual import virtual
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.model import RunStarted
from pallas.surfaces.bridge.tool_schemas import TOOLS as SCHEMAS

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", ERAS)
ID = re.compile(r"[0-9a-f]{32}")


@module_fleet(database="memory")
def fleet(folder: Path) -> Path:
    return bridged(folder)


@asynccontextmanager
async def bridge(fleet: Fleet, era: str = ERAS[0], bearer: str | None = None) -> AsyncIterator[Client]:
    """A real client of the bridge."""
    async with virtual(fleet, "/mcp", era=era, bearer=bearer) as connected:
        yield connected


@both_eras
async def test_exactly_the_eight_tools_are_listed_with_their_schemas(fleet: Fleet, era: str) -> None:
    # DR-1
    async with bridge(fleet, era) as door:
        listed = (await door.list_tools()).tools
    assert [each.name for each in listed] == TOOLS
    assert [each.input_schema for each in listed] == [dict(each.schema) for each in SCHEMAS]
    assert all(each.description and each.title for each in listed)


@both_eras
async def test_health_counts_and_agents_are_found_by_what_they_can_do(fleet: Fleet, era: str) -> None:
    # DR-2, DR-3
    async with bridge(fleet, era) as door:
        health = await tell(door, "bridge_health")
        assert health["healthy"] is True
        assert health["agents"] == {"total": 4, "ready": 4}
        assert health["sessions"]["capacity"] == 100
        assert health["uptime"] > 0
        found = await tell(door, "agents_discover", refresh=True)
        assert [each["id"] for each in found["agents"]] == ["desk", "upper", "slow", "fails"]
        desk = found["agents"][0]
        assert (desk["capabilities"], desk["status"], desk["kind"]) == (["know"], "ready", "llm")
        found = await tell(door, "agents_discover", capability="shout")
        assert [each["id"] for each in found["agents"]] == ["upper"]
        assert await tell(door, "agents_discover", capability="nothing") == {"agents": []}


@both_eras
async def test_a_session_is_opened_asked_looked_at_and_closed(fleet: Fleet, era: str) -> None:
    # DR-9, DR-12
    async with bridge(fleet, era) as door:
        made = await tell(door, "sessions_create", agentId="desk")
        session = made["sessionId"]
        assert ID.fullmatch(session)
        assert made == {
            "sessionId": session, "agentId": "desk", "status": "active", "createdAt": made["createdAt"],
        }  # fmt: skip
        assert made["createdAt"] > 1_700_000_000_000
        assert (await tell(door, "sessions_status", sessionId=session))["status"] == "active"
        first = await tell(door, "sessions_prompt", sessionId=session, prompt="hello")
        assert first["text"] == "turn 1, first hello"
        assert first["stopReason"] == "end_turn"
        assert set(first["usage"]) == {"inputTokens", "outputTokens"}
        again = await tell(door, "sessions_prompt", sessionId=session, prompt="again")
        assert again["text"] == "turn 2, first hello"
        assert again["requestId"] != first["requestId"]
        status = await tell(door, "sessions_status", sessionId=session)
        assert status["status"] == "idle"
        assert status["lastActivityAt"] >= made["createdAt"]
        assert await tell(door, "sessions_cancel", sessionId=session) == {
            "cancelled": True, "sessionId": session, "wasRunning": False,
        }  # fmt: skip
        for _ in range(2):
            closed = await tell(door, "sessions_close", sessionId=session, reason="done")
            assert closed == {"closed": True, "sessionId": session}
        body = await refused(door, "sessions_status", sessionId=session)
        assert body["error"] == f"Session not found: {session}"
        assert kind_of(body) == ("UPSTREAM", -32002, False)
        assert body["data"]["sessionValid"] is False
        # The thread is there as before, for its owner and on every surface.
    thread = status["threadId"]
    async with client(fleet, "desk") as desk:
        assert await ask(desk, "once more", conversation_id=thread) == "turn 3, first hello"


@both_eras
async def test_a_prompt_tells_of_its_progress_to_who_asks_for_it(fleet: Fleet, era: str) -> None:
    seen: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message))

    async with bridge(fleet, era) as door:
        result = await door.call_tool(
            "tasks_delegate", {"prompt": "hello", "agentId": "desk"}, progress_callback=hear
        )
    assert not result.is_error
    assert (1.0, "desk step 1 (llm)") in seen
    assert [done for done, _ in seen] == [float(n) for n in range(1, len(seen) + 1)]


@both_eras
async def test_a_task_is_a_session_of_its_own_that_is_closed_after_it(fleet: Fleet, era: str) -> None:
    # DR-18
    async with bridge(fleet, era) as door:
        done = await tell(door, "tasks_delegate", prompt="hello", agentId="upper")
        assert (done["success"], done["agentId"], done["text"]) == (True, "upper", "HELLO")
        assert "usage" not in done
        assert ID.fullmatch(done["sessionId"])
        await refused(door, "sessions_status", sessionId=done["sessionId"])
        failed = await refused(door, "tasks_delegate", prompt="bug", agentId="fails")
        assert failed["success"] is False
        assert ID.fullmatch(failed["sessionId"])
        assert "inside" not in failed["error"].replace("inside the", "")
        assert "sk-abc" not in json.dumps(failed)
        await refused(door, "sessions_status", sessionId=failed["sessionId"])
        nobody = await refused(door, "tasks_delegate", prompt="x", agentId="zz")
        assert (nobody["success"], "sessionId" in nobody) == (False, False)


@both_eras
async def test_every_failure_is_an_error_with_its_whole_body(fleet: Fleet, era: str) -> None:
    # DR-7, DR-20, DR-21 X15
    async with bridge(fleet, era) as door:
        session = (await tell(door, "sessions_create", agentId="upper"))["sessionId"]
        body = await refused(door, "sessions_create", agentId="zz")
        assert body["error"] == "Agent not found: zz"
        assert kind_of(body) == ("UPSTREAM", -32002, False)
        assert body["data"]["agents"] == ["desk", "upper", "slow", "fails"]
        assert (await refused(door, "sessions_create", agentId="uper"))["data"]["suggestion"] == "upper"
        body = await refused(door, "sessions_create", agentId="desk", metadata={"provider": "nope"})
        assert body["error"] == 'Provider "nope" is not registered in the ProviderRegistry'
        assert kind_of(body) == ("CONFIG", -32004, False)
        for size, told in ((1_048_577, "1048577"), (1_048_576, "")):
            given = {"sessionId": session, "prompt": "ü" * (size // 2) + "x" * (size % 2)}
            result = await door.call_tool("sessions_prompt", given)
            text = "".join(getattr(block, "text", "") for block in result.content)
            if told:
                assert result.is_error
                assert all(each in json.loads(text)["error"] for each in (told, "1048576"))
                assert kind_of(json.loads(text)) == ("UPSTREAM", -32002, False)
            else:  # it is taken; the answer of that size reaches no client
                assert "bytes" in json.loads(text)["error"]
        body = await refused(door, "sessions_create", metadata={"x": "y" * 65_537})
        assert "65536" in body["error"]
        assert kind_of(body) == ("UPSTREAM", -32002, False)
        for tool, given, said in (
            ("nope", {}, "unknown tool 'nope'; the bridge has bridge_health"),
            ("bridge_health", {"x": 1}, "takes none"),
            ("sessions_prompt", {"prompt": "x"}, "sessionId is missing"),
            (
                "sessions_prompt",
                {"sessionId": session, "prompt": "x", "runtimeParams": {"temprature": 1}},
                "did you mean temperature",
            ),
            (
                "sessions_prompt",
                {"sessionId": session, "prompt": "x", "runtimeParams": {"temperature": 3}},
                "temperature",
            ),
        ):
            body = await refused(door, tool, **given)
            assert said in body["error"]
            assert kind_of(body) == ("PROTOCOL", -32000, False)
        body = await refused(door, "sessions_prompt", sessionId="f" * 32, prompt="x")
        assert body["error"] == f"Session not found: {'f' * 32}"
        await tell(door, "sessions_close", sessionId=session)


@both_eras
async def test_each_type_of_fault_has_its_code_and_says_whether_trying_again_helps(
    fleet: Fleet, era: str
) -> None:
    # DR-22
    table = {
        "CONFIG": (-32004, False), "AUTH": (-32003, False), "UPSTREAM": (-32002, False),
        "TIMEOUT": (-32001, True), "TRANSPORT": (-32000, True), "PROTOCOL": (-32000, False),
        "INTERNAL": (-32603, False),
    }  # fmt: skip
    async with bridge(fleet, era) as door:
        for kind, (code, retryable) in table.items():
            body = await refused(door, "tasks_delegate", prompt=kind, agentId="fails")
            assert kind_of(body) == (kind, code, retryable)
            assert f"{kind} it is" in body["error"]
        providers = {
            "refuse": ("AUTH", -32003, False),
            "hurry": ("UPSTREAM", -32002, True),
            "break": ("UPSTREAM", -32002, True),
        }
        for text, told in providers.items():
            body = await refused(door, "tasks_delegate", prompt=text, agentId="desk")
            assert kind_of(body) == told
            assert body["data"]["providerId"] == "generic"
            assert "sk-abc" not in json.dumps(body)


async def test_an_answer_that_no_client_could_receive_is_said_to_be_too_large(fleet: Fleet) -> None:
    # DR-21
    async with bridge(fleet) as door:
        session = (await tell(door, "sessions_create", agentId="fails"))["sessionId"]
        body = await refused(door, "sessions_prompt", sessionId=session, prompt="lines")
        assert "reach every MCP client" in body["error"]
        assert body["data"]["sessionValid"] is True
        assert (await tell(door, "sessions_status", sessionId=session))["status"] == "idle"
        await tell(door, "sessions_close", sessionId=session)


@both_eras
async def test_a_busy_session_refuses_and_its_prompt_can_be_cancelled(fleet: Fleet, era: str) -> None:
    # DR-11, DR-16
    async with bridge(fleet, era) as door:
        session = (await tell(door, "sessions_create", agentId="slow"))["sessionId"]
        running_prompt = asyncio.create_task(
            tell(door, "sessions_prompt", sessionId=session, prompt="one", queue=True)
        )
        await until(lambda: fleet.kernel.in_flight.of("slow"))
        assert (await tell(door, "sessions_status", sessionId=session))["status"] == "busy"
        body = await refused(door, "sessions_prompt", sessionId=session, prompt="two")
        assert body["error"] == f"Session {session} is busy — concurrent prompts not allowed"
        assert body["data"]["sessionValid"] is True
        stopped = await tell(door, "sessions_cancel", sessionId=session)
        assert stopped["wasRunning"] is True
        assert (await running_prompt)["stopReason"] == "cancelled"
        await tell(door, "sessions_close", sessionId=session)


async def test_a_timeout_is_in_milliseconds(fleet: Fleet) -> None:
    # DR-15
    async with bridge(fleet) as door:
        body = await refused(door, "tasks_delegate", prompt="x", agentId="slow", timeout=50)
        assert kind_of(body) == ("TIMEOUT", -32001, True)
        await until(lambda: not fleet.kernel.in_flight.of("slow"))


@both_eras
async def test_a_caller_that_goes_away_cancels_its_run(fleet: Fleet, era: str) -> None:
    began, gone = (Path(fleet.project.root, f"slow.{each}") for each in ("began", "cancelled"))
    for each in (began, gone):
        each.write_text("")

    async def go() -> None:
        async with bridge(fleet, era) as door:
            await tell(door, "tasks_delegate", prompt="x", agentId="slow")

    going = asyncio.create_task(go())
    await until(began.read_text)
    going.cancel()
    await asyncio.wait({going})
    await until(gone.read_text)
    await until(lambda: not fleet.kernel.in_flight.of("slow"))
    await until(lambda: fleet.surfaces.sessions.active == 0)


async def test_who_comes_when_too_much_is_under_way_is_refused_with_the_whole_body(fleet: Fleet) -> None:
    # DR-19 X15
    async with bridge(fleet) as door:
        working = [
            asyncio.create_task(door.call_tool("tasks_delegate", {"prompt": "x", "agentId": "slow"}))
            for _ in range(3)
        ]
        await until(lambda: len(fleet.kernel.in_flight.of("slow")) == 3)
        body = await refused(door, "tasks_delegate", prompt="x", agentId="upper")
        assert body["error"] == "Server overloaded"
        assert kind_of(body) == ("TRANSPORT", -32000, True)
        # Looking and letting go are always possible.
        assert (await tell(door, "bridge_health"))["sessions"]["active"] == 3
        for record in fleet.surfaces.sessions.records():
            await tell(door, "sessions_cancel", sessionId=record.id)
        await asyncio.wait_for(asyncio.wait(working), 60)
        done = await tell(door, "tasks_delegate", prompt="x", agentId="upper")
    assert done["text"] == "X"


async def test_a_run_of_the_bridge_is_one_like_any_other(fleet: Fleet) -> None:
    # UN-1
    events: list[Any] = []
    unlisten = fleet.hub.listen(events.append)
    try:
        async with bridge(fleet) as door:
            made = await tell(door, "sessions_create", agentId="desk")
            said = await tell(door, "sessions_prompt", sessionId=made["sessionId"], prompt="seen")
            status = await tell(door, "sessions_status", sessionId=made["sessionId"])
            await tell(door, "sessions_close", sessionId=made["sessionId"])
    finally:
        unlisten()
    (started,) = [each for each in events if isinstance(each, RunStarted)]
    assert (started.run_id, started.agent, started.surface) == (said["requestId"], "desk", "bridge")
    async with virtual(fleet, "/virtual/agent-desk/mcp", era=ERAS[0]) as desk:
        more = await desk.call_tool("chat", {"message": "more", "threadId": status["threadId"]})
    assert more.structured_content["text"] == "turn 2, first seen"


@both_eras
async def test_an_agent_that_one_may_not_run_is_not_there(
    tmp_path_factory: pytest.TempPathFactory, era: str
) -> None:
    # DR-7, C10
    may = {"token:ada": ["run:agents:upper"], "token:bob": ["run:agents:*"], "token:ci": ["view:agents"]}
    (port,) = free_ports(1)
    top = {"auth": auth(), "rbac": rules(may), "port": port}
    root = bridged(tmp_path_factory.mktemp("ruled"), ("upper", "slow"), top=top)
    async with running(root, database="memory") as fleet:
        async with bridge(fleet, era, TOKENS["ada"]) as door:
            found = await tell(door, "agents_discover")
            assert [each["id"] for each in found["agents"]] == ["upper"]
            assert (await tell(door, "bridge_health"))["agents"] == {"total": 1, "ready": 1}
            body = await refused(door, "sessions_create", agentId="slow")
            assert body["error"] == "Agent not found: slow"
            assert body["data"]["agents"] == ["upper"]
            mine = (await tell(door, "sessions_create"))["sessionId"]
            done = await tell(door, "sessions_prompt", sessionId=mine, prompt="mine")
            assert done["text"] == "MINE"
        async with bridge(fleet, era, TOKENS["bob"]) as door:
            body = await refused(door, "sessions_prompt", sessionId=mine, prompt="x")
            assert body["error"].startswith(f"Session not found: {mine} was opened with another identity")
        async with bridge(fleet, era, TOKENS["ci"]) as door:
            # DR-2
            assert (await tell(door, "bridge_health"))["healthy"] is False
            assert await tell(door, "agents_discover") == {"agents": []}
            body = await refused(door, "sessions_create")
            assert body["error"] == "No agents registered"
            assert kind_of(body) == ("CONFIG", -32004, False)
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.post(f"{fleet.ports.origin}/mcp", json={})
        assert (answer.status_code, answer.json()["error"]["data"]["type"]) == (401, "AUTH")


async def test_before_the_start_and_while_it_drains_a_fleet_says_so(tmp_path: Path) -> None:
    # DR-8
    waits = agent_module("desk") + "\nimport time\nfrom pathlib import Path\n"
    waits += "while not Path('go').exists():\n    time.sleep(0.02)\n"
    root = write_project(tmp_path / "p", {"desk": waits})
    before, project = Path.cwd(), load_project(root)
    fleet = Fleet(project, dev=True, database="memory")
    starting = asyncio.create_task(fleet.start())
    try:
        await until(lambda: answers(fleet.project.registry_port))
        async with bridge(fleet) as door:
            health = await tell(door, "bridge_health")
            assert (health["healthy"], health["agents"]) == (False, {"total": 1, "ready": 0})
            (desk,) = (await tell(door, "agents_discover"))["agents"]
            assert desk["status"] == "unavailable"
            for tool, given in (
                ("sessions_create", {}),
                ("tasks_delegate", {"prompt": "x"}),
                ("sessions_prompt", {"sessionId": "f" * 32, "prompt": "x"}),
            ):
                body = await refused(door, tool, **given)
                assert body["error"] == "Executor not started"
                assert kind_of(body) == ("INTERNAL", -32603, False)
            (root / "go").touch()
            await starting
            assert (await tell(door, "tasks_delegate", prompt="hello"))["text"] == "hello"
            await fleet.drain(0)
            body = await refused(door, "sessions_create")
            assert "draining" in body["error"]
            assert kind_of(body) == ("TRANSPORT", -32000, True)
    finally:
        (root / "go").touch()
        await asyncio.wait({starting})
        await fleet.stop()
        os.chdir(before)


def answers(port: int) -> bool:
    """Whether something listens there."""
    with socket.create_connection(("127.0.0.1", port), 60):
        return True
