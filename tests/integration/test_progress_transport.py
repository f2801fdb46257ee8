"""Progress over connections that fail or do not read: the run and its answer are as without progress."""

import json
import socket
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp.server.session import ServerSession
from support import raw_client
from support.live import ERAS, agent_module, client, module_fleet
from support.offline import offline_project
from support.served import text_of
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import RunFinished
from pallas.surfaces.direct_calls import _Exchange

SCRIPT = """
rules:
  - when: {last: user, text: use the tool}
    call: [{tool: echo__echo, arguments: {text: "hi"}}]
  - when: {last: user, text: write much}
    say: "{{ last }}"
  - when: {last: tool}
    say: "tool said {{ result }}"
"""
MUCH = "write much, " * 70_000
SMALL_BUFFER = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)]
PROGRESS = "notifications/progress"

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", ERAS)


@module_fleet()
def fleet(folder: Path) -> Path:
    return offline_project(folder, {"boss": agent_module("boss", ("echo",))}, SCRIPT)


@both_eras
async def test_a_connection_that_raises_for_each_notification_changes_nothing(
    fleet: Fleet, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PI-22
    heard: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with client(fleet, "boss", era=era) as boss:
        whole = await boss.call_tool("send_message", {"message": "use the tool"}, progress_callback=hear)
        expected, lines = text_of(whole), list(heard)
        assert "tool said" in expected and len(lines) >= 4
        heard.clear()
        tried: list[str] = []
        send = ServerSession._notify

        async def broken(self: ServerSession, notification: Any, **more: Any) -> None:
            if notification.method != PROGRESS:
                await send(self, notification, **more)
                return
            tried.append(notification.params.message)
            raise anyio.BrokenResourceError

        async def broken_directly(self: _Exchange, *, message: str, **more: Any) -> None:
            tried.append(message)
            raise anyio.BrokenResourceError

        monkeypatch.setattr(ServerSession, "_notify", broken)
        monkeypatch.setattr(_Exchange, "_progress", broken_directly)
        seen = fleet.hub.seq
        result = await boss.call_tool("send_message", {"message": "use the tool"}, progress_callback=hear)
    assert (result.is_error, text_of(result)) == (False, expected)
    assert tried == lines
    assert heard == []
    (run,) = [each for each in fleet.hub.since(seen, 10_000).events if isinstance(each, RunFinished)]
    assert (run.outcome, run.steps) == ("ok", 3)


@pytest.mark.slow
@both_eras
async def test_a_caller_that_does_not_read_its_progress_holds_up_no_run(fleet: Fleet, era: str) -> None:
    # PI-22
    url = next(each.url for each in fleet.agents if each.name == "boss")
    params: dict[str, Any] = {
        "name": "send_message",
        "arguments": {"message": MUCH, "stream_text": True},
        "_meta": {"progressToken": 7},
    }
    headers = raw_client.handshake_headers(await raw_client.handshake(url) if era == "legacy" else "")
    if era != "legacy":
        headers |= {"mcp-protocol-version": era, "mcp-method": "tools/call", "mcp-name": "send_message"}
        params["_meta"] |= raw_client.meta(era)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    seen, transport = fleet.hub.seq, httpx2.AsyncHTTPTransport(socket_options=SMALL_BUFFER)
    async with (
        httpx2.AsyncClient(transport=transport, trust_env=False, timeout=60) as http,
        http.stream("POST", url, json=body, headers=headers) as answer,
    ):
        # Nothing of it is read before the run has ended.
        await until(lambda: _outcomes(fleet, seen), timeout=60)
        assert _outcomes(fleet, seen) == ["ok"]
        assert fleet.kernel.stats("boss").active == 0
        lines = [json.loads(line[6:]) async for line in answer.aiter_lines() if line.startswith("data: {")]
    assert lines[0]["method"] == PROGRESS
    assert lines[-1]["result"]["isError"] is False
    assert lines[-1]["result"]["content"][0]["text"] == MUCH


def _outcomes(fleet: Fleet, seen: int) -> list[str]:
    found = fleet.hub.since(seen, 100_000).events
    return [each.outcome for each in found if isinstance(each, RunFinished)]
