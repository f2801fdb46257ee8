"""``kind: remote`` in a whole fleet: asked like any other agent, whatever becomes of the other side."""

from pathlib import Path

import pytest
from support.live import ERAS, ask, client, running
from support.remotes import Other, other, with_remote
from support.served import fault_in
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import AgentState, HealthStatus


def state_of(fleet: Fleet) -> AgentState:
    """That of its agent."""
    (agent,) = fleet.agents
    return agent.state


@pytest.mark.parametrize("era", ERAS)
async def test_it_is_asked_like_any_other_agent(tmp_path: Path, era: str) -> None:
    async with other() as there, running(with_remote(tmp_path, there.url)) as fleet:
        await until(lambda: state_of(fleet) is AgentState.READY)
        async with client(fleet, "far", era=era) as far:
            lines: list[str] = []

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                lines.append(message or "")

            result = await far.call_tool(
                "send_message", {"message": "one", "conversation_id": "new"}, progress_callback=hear
            )
            assert not result.is_error and result.meta is not None
            assert lines == ["desk/look: started", "desk/look: completed"]
            handle = result.meta["local.pallas/conversationId"]
            assert await ask(far, "two", conversation_id=handle) == f"{there.heard[-1]}?"
            assert "user: one" in there.heard[-1]
            history = await far.get_prompt("far_history", {"conversation_id": handle})
            assert len(history.messages) == 4
            assert (await fleet.agents[0].health()).status is HealthStatus.OK


@pytest.mark.slow
async def test_it_may_be_away_when_the_fleet_starts_and_come_and_go(tmp_path: Path) -> None:
    there = Other()
    await there.come()
    await there.go()
    try:
        root = with_remote(tmp_path, there.url, restart={"backoff": 0.2})
        async with running(root) as fleet:
            await until(lambda: state_of(fleet) is AgentState.BACKOFF)
            assert fleet.snapshot().agents[0].availability == "unavailable"
            await there.come()
            await until(lambda: state_of(fleet) is AgentState.READY)
            async with client(fleet, "far") as far:
                assert await ask(far, "hello") == "hello?"
                await there.go()
                fault = fault_in(await far.call_tool("send_message", {"message": "gone"}))
                assert fault["code"] == -32000
                assert fault["data"]["type"] == "TRANSPORT" and fault["data"]["retryable"]
                await until(lambda: state_of(fleet) is AgentState.BACKOFF)
                await there.come()
                await until(lambda: state_of(fleet) is AgentState.READY)
                assert await ask(far, "back") == "back?"
    finally:
        await there.go()


async def test_the_callers_bearer_goes_there_and_no_further(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        other() as there,
        running(with_remote(tmp_path, there.url, forward_inbound_auth=True)) as fleet,
    ):
        await until(lambda: state_of(fleet) is AgentState.READY)
        async with client(fleet, "far", bearer="token-of-anna-1234") as far:
            assert await ask(far, "one") == "one?"
            there.call_status = 401
            result = await far.call_tool("send_message", {"message": "two"})
            assert fault_in(result)["data"]["type"] == "AUTH"
            assert "token-of-anna" not in str(result)
        assert "Bearer token-of-anna-1234" in there.bearers
        assert "token-of-anna" not in caplog.text
        assert "token-of-anna" not in repr(fleet.snapshot())


async def test_what_cannot_be_told_is_said_where_it_is_configured(tmp_path: Path) -> None:
    async with other() as there, running(with_remote(tmp_path, there.url, tool="tell")) as fleet:
        await until(lambda: state_of(fleet) is AgentState.ERROR)
        reason = fleet.agents[0].reason
        assert "agents.yaml" in reason and "it has ask" in reason and "correct tool" in reason
