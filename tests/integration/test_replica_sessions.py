"""Sessions of the bridge at any replica, and in a fleet that is started again."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from support.bridged import kind_of, refused, tell
from support.databases import Server, fresh_database
from support.live import ERAS, MODERN_FIRST
from support.replicas import Replicas, bridge, in_its_call
from support.served import Served, fault_in, served
from support.survivors import effects, ended_run, project
from support.waiting import until

both_eras = pytest.mark.parametrize("era", MODERN_FIRST)
GO_ON = pytest.mark.parametrize("replicas", [{"*": "repeat"}], indirect=True)


async def status(client: Client, session: str) -> str:
    return str((await tell(client, "sessions_status", sessionId=session))["status"])


async def asked(client: Client, session: str, prompt: str, **more: Any) -> dict[str, Any]:
    return await tell(client, "sessions_prompt", sessionId=session, prompt=prompt, **more)


async def lost(replica: Served, era: str, session: str, prompt: str) -> None:
    """Ask at a replica that is killed meanwhile."""
    with suppress(Exception):  # the connection breaks
        async with bridge(replica, era) as client:
            await asked(client, session, prompt)


@pytest.mark.slow
@both_eras
async def test_a_session_is_used_at_any_replica(replicas: Replicas, era: str) -> None:
    # DR-9, DR-12
    async with bridge(replicas.one, era) as one, bridge(replicas.two, era) as two:
        session = (await tell(one, "sessions_create"))["sessionId"]
        assert await status(two, session) == "active"
        for number, client in enumerate((two, one, two, one)):
            assert (await asked(client, session, "hi"))["text"] == f"turn {number + 1}"
        seen = [await tell(client, "sessions_status", sessionId=session) for client in (one, two)]
        assert seen[0] == seen[1]
        assert (seen[0]["status"], seen[0]["threadId"][:5]) == ("idle", "conv-")
        for client in (two, one):
            await tell(client, "sessions_close", sessionId=session)
        for client in (one, two):
            body = await refused(client, "sessions_status", sessionId=session)
            assert body["error"] == f"Session not found: {session}"
            body = await refused(client, "sessions_prompt", sessionId=session, prompt="hi")
            assert (kind_of(body), body["data"]["sessionValid"]) == (("UPSTREAM", -32002, False), False)


@pytest.mark.slow
@both_eras
async def test_a_session_belongs_to_its_caller_at_any_replica(replicas: Replicas, era: str) -> None:
    async with bridge(replicas.one, era, "mine") as one:
        session = (await tell(one, "sessions_create"))["sessionId"]
    forged = f"{int(session, 16) ^ 1:032x}"
    for fleet in (replicas.two, replicas.one):
        async with bridge(fleet, era, "yours") as you, bridge(fleet, era) as nobody:
            for client, named in ((you, session), (nobody, session), (you, forged), (you, "x" * 32)):
                for tool, more in (
                    ("sessions_status", {}), ("sessions_prompt", {"prompt": "hi"}), ("sessions_cancel", {}),
                ):  # fmt: skip
                    body = await refused(client, tool, sessionId=named, **more)
                    assert body["error"].startswith(f"Session not found: {named}")
                    assert kind_of(body) == ("UPSTREAM", -32002, False)
                    assert body["data"]["reason"] == "not_found"
                await tell(client, "sessions_close", sessionId=named)  # says nothing of it, and does nothing
            body = await refused(you, "sessions_create", metadata={"resume": session})
            assert body["error"].startswith("Session not found")
    async with bridge(replicas.two, era, "mine") as two:
        assert (await asked(two, session, "hi"))["text"] == "turn 1"


@pytest.mark.slow
@both_eras
async def test_a_session_of_a_replica_that_was_killed_goes_on_at_another(
    replicas: Replicas, era: str
) -> None:
    async with bridge(replicas.one, era) as one:
        unused, used = [(await tell(one, "sessions_create"))["sessionId"] for _ in range(2)]
        assert (await asked(one, used, "hi"))["text"] == "turn 1"
    replicas.one.send(signal.SIGKILL)
    async with bridge(replicas.two, era) as two:
        assert [await status(two, each) for each in (unused, used)] == ["active", "idle"]
        assert (await asked(two, used, "hi"))["text"] == "turn 2"
        assert (await asked(two, unused, "hi"))["text"] == "turn 1"
        await tell(two, "sessions_close", sessionId=unused)
        assert "not found" in (await refused(two, "sessions_status", sessionId=unused))["error"]


@pytest.mark.slow
@GO_ON
@both_eras
async def test_a_session_is_busy_until_the_prompt_of_a_killed_replica_is_answered_by_another(
    replicas: Replicas, era: str
) -> None:
    async with bridge(replicas.two, era) as two:
        session = (await tell(two, "sessions_create"))["sessionId"]
        asking = asyncio.create_task(lost(replicas.one, era, session, "work"))
        await in_its_call(replicas.here)
        replicas.one.send(signal.SIGKILL)
        await in_its_call(replicas.here, 2)
        assert await status(two, session) == "busy"
        body = await refused(two, "sessions_prompt", sessionId=session, prompt="hi")
        assert body["error"] == f"Session {session} is busy — concurrent prompts not allowed"
        waiting = asyncio.create_task(asked(two, session, "hi", queue=True))
        (replicas.here / "door").touch()
        assert (await waiting)["text"] == "turn 2"
        assert await status(two, session) == "idle"
        await asking
    run, rows = await ended_run(replicas.url, 1)
    assert (run.status, run.attempt) == ("ok", 2)
    assert [row.split(":")[0] for row in rows if "user" in row] == ["user complete"] * 2


@pytest.mark.slow
@GO_ON
@both_eras
async def test_a_session_goes_on_where_its_prompt_is_handed_over(replicas: Replicas, era: str) -> None:
    async with bridge(replicas.one, era) as one, bridge(replicas.two, era) as two:
        session = (await tell(one, "sessions_create"))["sessionId"]
        call = {"sessionId": session, "prompt": "work"}
        asking = asyncio.create_task(one.call_tool("sessions_prompt", call))
        await in_its_call(replicas.here)
        replicas.one.send(signal.SIGTERM)
        data = fault_in(await asking)["data"]
        assert (data["reason"], data["sessionValid"]) == ("handed_over", True)
        await in_its_call(replicas.here, 2)
        assert await status(two, session) == "busy"
        stopped = await tell(two, "sessions_cancel", sessionId=session)
        assert stopped["wasRunning"] is True
        await until(lambda: is_idle(two, session))
        assert (await ended_run(replicas.url))[0].status == "cancelled"


async def is_idle(client: Client, session: str) -> bool:
    return await status(client, session) == "idle"


@pytest.mark.slow
@both_eras
async def test_of_two_prompts_at_two_replicas_one_is_refused_or_waits(replicas: Replicas, era: str) -> None:
    # DR-11
    async with bridge(replicas.one, era) as one, bridge(replicas.two, era) as two:
        session = (await tell(one, "sessions_create"))["sessionId"]
        first = asyncio.create_task(asked(two, session, "work"))
        await in_its_call(replicas.here)
        assert [await status(each, session) for each in (one, two)] == ["busy", "busy"]
        for client in (one, two):
            body = await refused(client, "sessions_prompt", sessionId=session, prompt="hi")
            assert body["error"] == f"Session {session} is busy — concurrent prompts not allowed"
            assert body["data"]["sessionValid"] is True
        second = asyncio.create_task(asked(one, session, "hi", queue=True))
        (replicas.here / "door").touch()
        assert "waited b" in (await first)["text"]
        assert (await second)["text"] == "turn 2"
        answered = 1
        # At the same moment: never two at once, and none of them is lost without a word.
        call = {"sessionId": session, "prompt": "hi"}
        for number in range(3, 8):
            both = await asyncio.gather(*(each.call_tool("sessions_prompt", call) for each in (one, two)))
            refusals = [fault_in(each)["error"] for each in both if each.is_error]
            assert len(refusals) <= 1
            assert all("is busy" in each for each in refusals)
            waits = asked(two, session, "hi", queue=True), asked(one, session, "hi", queue=True)
            assert {each["stopReason"] for each in await asyncio.gather(*waits)} == {"end_turn"}, number
            answered += len(both) - len(refusals) + len(waits)
    _, rows = await ended_run(replicas.url)
    turns = [row.split(":")[0] for row in rows if ": hi" in row or ": turn" in row]
    assert turns == ["user complete", "assistant complete"] * answered


@pytest.mark.slow
@both_eras
async def test_a_prompt_is_cancelled_at_another_replica(replicas: Replicas, era: str) -> None:
    # DR-16
    async with bridge(replicas.one, era) as one, bridge(replicas.two, era) as two:
        session = (await tell(one, "sessions_create"))["sessionId"]
        assert (await tell(two, "sessions_cancel", sessionId=session))["wasRunning"] is False
        asking = asyncio.create_task(asked(one, session, "work"))
        await in_its_call(replicas.here)
        other = await tell(two, "sessions_cancel", sessionId=session, requestId="other")
        assert other["wasRunning"] is False
        assert (await tell(two, "sessions_cancel", sessionId=session))["wasRunning"] is True
        assert (await asking)["stopReason"] == "cancelled"
        assert [await status(each, session) for each in (one, two)] == ["idle", "idle"]
    assert effects(replicas.here) == ["note a", "wait b"]


@pytest.mark.slow
@both_eras
async def test_a_session_that_is_closed_at_another_replica_ends_with_its_prompt(
    replicas: Replicas, era: str
) -> None:
    # DR-12
    async with bridge(replicas.one, era) as one, bridge(replicas.two, era) as two:
        session = (await tell(one, "sessions_create"))["sessionId"]
        asking = asyncio.create_task(asked(one, session, "work"))
        await in_its_call(replicas.here)
        await tell(two, "sessions_close", sessionId=session)
        assert (await asking)["stopReason"] == "cancelled"
        for client in (one, two):
            body = await refused(client, "sessions_status", sessionId=session)
            assert body["error"] == f"Session not found: {session}"
        assert (await tell(one, "bridge_health"))["sessions"]["active"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL])
async def test_a_session_goes_on_in_a_fleet_that_is_started_again(
    tmp_path: Path, ends: signal.Signals
) -> None:
    root = project(tmp_path / "p", f"sqlite:///{tmp_path}/ledger.sqlite3")
    with served(root) as first:
        await first.says("] running")
        async with bridge(first, ERAS[0]) as client:
            session, unused = [(await tell(client, "sessions_create"))["sessionId"] for _ in range(2)]
            assert (await asked(client, session, "hi"))["text"] == "turn 1"
        first.send(ends)
        await first.ended()
    with served(root) as again:
        await again.says("] running")
        async with bridge(again, ERAS[1]) as client:
            assert await status(client, unused) == "active"
            assert (await asked(client, session, "hi"))["text"] == "turn 2"
            await tell(client, "sessions_close", sessionId=session)
            assert "not found" in (await refused(client, "sessions_status", sessionId=session))["error"]


@pytest.mark.slow
async def test_two_fleets_on_one_file_share_their_sessions(tmp_path: Path) -> None:
    # DR-11, DR-12, DR-16
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    roots = [project(tmp_path / name, url, here=tmp_path) for name in ("one", "two")]
    with served(roots[0]) as first, served(roots[1]) as second:
        for fleet in (first, second):
            await fleet.says("] running")
            await until(lambda: has_seen_another(fleet))  # noqa: B023 - it is awaited here
        async with bridge(first, ERAS[0]) as one, bridge(second, ERAS[1]) as two:
            session = (await tell(one, "sessions_create"))["sessionId"]
            assert (await asked(two, session, "hi"))["text"] == "turn 1"
            asking = asyncio.create_task(asked(one, session, "work"))
            await in_its_call(tmp_path)
            body = await refused(two, "sessions_prompt", sessionId=session, prompt="hi")
            assert body["error"] == f"Session {session} is busy — concurrent prompts not allowed"
            assert (await tell(two, "sessions_cancel", sessionId=session))["wasRunning"] is True
            assert (await asking)["stopReason"] == "cancelled"
            asking = asyncio.create_task(asked(one, session, "work"))
            await in_its_call(tmp_path, 2)
            await tell(two, "sessions_close", sessionId=session)
            assert (await asking)["stopReason"] == "cancelled"
            assert "not found" in (await refused(one, "sessions_status", sessionId=session))["error"]


async def has_seen_another(fleet: Served) -> bool:
    return bool((await fleet.get("/healthz")).json()["replicas"] == 2)


OF_A_TEAM = """
import asyncio
from pathlib import Path

here = Path("HERE")


async def answer(request):
    with (here / "asked").open("a") as file:
        file.write(f"{request.metadata}\\n")
    while not (here / "door").exists():
        await asyncio.sleep(0.01)
    return request.metadata["team"]
"""


@pytest.mark.slow
async def test_a_handler_that_is_asked_again_elsewhere_knows_its_session(
    tmp_path: Path, postgres: Server
) -> None:
    lead = {"kind": "handler", "handler": "team:answer", "unfinished_calls": {"agent:lead": "repeat"}}
    asked_for = tmp_path / "asked"
    async with fresh_database(postgres) as url:
        roots = [project(tmp_path / name, url, lead=lead) for name in ("one", "two")]
        for root in roots:
            (root / "team.py").write_text(OF_A_TEAM.replace("HERE", str(tmp_path)))
        with served(roots[0]) as first, served(roots[1]) as second:
            for fleet in (first, second):
                await fleet.says("] running")
            metadata = {"team": "blue"}
            async with bridge(first, ERAS[0]) as one:
                made = await tell(one, "sessions_create", agentId="lead", metadata=metadata)
            async with bridge(second, ERAS[0]) as two:
                asking = asyncio.create_task(lost(first, ERAS[1], made["sessionId"], "who?"))
                await until(asked_for.exists)
                first.send(signal.SIGKILL)
                await until(lambda: asked_for.read_text().splitlines() == [str(metadata)] * 2)
                (tmp_path / "door").touch()
                await until(lambda: is_idle(two, made["sessionId"]))
                await asking
        assert (await ended_run(url))[1][-1] == "assistant complete: blue"
