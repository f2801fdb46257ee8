"""A chat of the workbench whose fleet is killed in the middle of an answer, or hands its run over."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, MODERN_FIRST
from support.proxy import proxy
from support.replicas import Replicas, in_its_call
from support.served import Served, fault_in, served, text_of
from support.survivors import effects, ended_run, project
from support.waiting import until

from pallas.model import Fault, FaultType
from pallas_tui.chat_client import LOOKING, AgentReply, ChatClient

RULES = {"unfinished_calls": {"*": "repeat"}}


def chat(fleet: Served, era: str) -> ChatClient:
    return ChatClient(fleet.url("clerk"), f"chat-{era}", era=era)  # type: ignore[arg-type]


async def tell_me(client: ChatClient, heard: list[str], key: str = "a key") -> AgentReply:
    return await client.send("tell me", on_progress=heard.append, key=key)


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_chat_finds_its_run_again_when_its_fleet_was_killed_and_started_again(
    tmp_path: Path, era: str
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "one", url, **RULES)
    heard: list[str] = []
    with served(root) as first:
        await first.says("] running")
        client = chat(first, era)
        asking = asyncio.create_task(tell_me(client, heard))
        await in_its_call(root)
        await until(lambda: any("One moment." in line for line in heard))
        first.send(signal.SIGKILL)
        await until(lambda: LOOKING in heard)
    with served(root) as again:
        await again.says("] running")
        await in_its_call(root, 2)
        assert not asking.done()
        (root / "door").touch()
        reply = await asking
        assert reply.fault is None
        assert "done:" in reply.text
        assert "was found again" in reply.note
        run, _ = await ended_run(url)
        assert (reply.run_id, run.attempt, run.status) == (run.id, 2, "ok")
        assert effects(root).count("wait b") == 2
        await client.close()


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_cancelling_a_question_cancels_its_run_although_it_has_a_key(tmp_path: Path, era: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "one", url)
    with served(root) as fleet:
        await fleet.says("] running")
        client = chat(fleet, era)
        asking = asyncio.create_task(tell_me(client, []))
        await in_its_call(root)
        asking.cancel()
        await asyncio.wait({asking})
        await client.close()
        run, _ = await ended_run(url)
        assert run.status == "cancelled"


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_cancelling_while_the_fleet_is_away_cancels_the_run_when_it_is_back(
    tmp_path: Path, era: str
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "one", url, **RULES)
    heard: list[str] = []
    with served(root) as first:
        await first.says("] running")
        client = chat(first, era)
        asking = asyncio.create_task(tell_me(client, heard))
        await in_its_call(root)
        first.send(signal.SIGKILL)
        await until(lambda: LOOKING in heard)
    asking.cancel()
    await asyncio.wait({asking})
    with served(root) as again:
        await again.says("] running")
        run, _ = await ended_run(url)
        assert run.status == "cancelled"
        await client.close()


@pytest.mark.slow
async def test_a_run_that_is_not_found_again_is_told_and_asking_again_joins_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas_tui.chat_client.RETURN_S", 0.5)
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "one", url, **RULES)
    with served(root) as first:
        await first.says("] running")
        client = chat(first, ERAS[0])
        asking = asyncio.create_task(tell_me(client, []))
        await in_its_call(root)
        first.send(signal.SIGKILL)
        with pytest.raises(Fault, match="asking again joins it") as failed:
            await asking
        assert failed.value.type is FaultType.TRANSPORT
        assert failed.value.data == {"looked_for": True}
    (root / "door").touch()
    with served(root) as again:
        await again.says("] running")
        assert "done:" in (await tell_me(client, [])).text
        assert effects(root).count("wait b") == 2
        await client.close()


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_chat_behind_one_address_goes_on_at_the_replica_that_its_run_is_handed_to(
    replicas: Replicas, era: str
) -> None:
    ports = [fleet.entries["agents"]["clerk"]["port"] for fleet in (replicas.one, replicas.two)]
    heard: list[str] = []
    async with proxy(ports[0]) as address:
        client = ChatClient(f"http://127.0.0.1:{address.port}/mcp", "chat-proxy", era=era)  # type: ignore[arg-type]
        asking = asyncio.create_task(tell_me(client, heard))
        await in_its_call(replicas.here)
        address.upstream = ports[1]
        replicas.one.send(signal.SIGTERM)
        await until(lambda: LOOKING in heard)
        (replicas.here / "door").touch()
        reply = await asking
        assert reply.fault is None
        assert "was found again" in reply.note
        assert (await ended_run(replicas.url))[0].id == reply.run_id
        await client.close()


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_run_with_a_key_is_cancelled_by_a_call_at_any_replica(replicas: Replicas, era: str) -> None:
    def meta(key: str, **more: bool) -> dict[str, Any]:
        return {
            "local.pallas/idempotency": key,
            **{f"local.pallas/{name}": each for name, each in more.items()},
        }

    async with replicas.one.client("clerk", era) as one, replicas.two.client("clerk", era) as two:
        offered = next(each for each in (await two.list_tools()).tools if each.name == "send_message")
        assert offered.meta is not None
        assert offered.meta["local.pallas/idempotency"] is True
        message = {"message": "work", "conversation_id": "mine"}
        asking = asyncio.create_task(one.call_tool("send_message", message, meta=meta("once")))
        await in_its_call(replicas.here)
        said = await two.call_tool("send_message", {"message": ""}, meta=meta("once", cancel=True))
        assert "is cancelled" in text_of(said)
        assert fault_in(await asking)["data"]["cancelled"] is True
        assert (await ended_run(replicas.url))[0].status == "cancelled"
        # What was cancelled before it came never begins.
        said = await two.call_tool("send_message", {"message": ""}, meta=meta("later", cancel=True))
        assert "none begins" in text_of(said)
        late = await one.call_tool("send_message", message, meta=meta("later"))
        assert "was sent with another request before" in fault_in(late)["error"]
        assert effects(replicas.here).count("wait b") == 1
        without = await one.call_tool("send_message", message, meta={"local.pallas/cancel": True})
        assert fault_in(without)["data"]["type"] == "PROTOCOL"
