"""What forwarding a bearer needs of fast-agent and of the MCP SDK, watched for changes."""

import asyncio
from traceback import format_exception
from typing import Any

import httpx2
import pytest
from fast_agent.config import MCPServerAuthSettings, MCPServerSettings
from starlette.requests import Request
from starlette.responses import Response
from support.fake_downstreams import FakeDownstream, serving
from support.recording import recording

from pallas.access.bearer_lease import BearerLease, LeaseSlot, lending
from pallas.downstreams.connection import Connection, Watch
from pallas.downstreams.offer import Offer
from pallas.downstreams.opening import Callbacks
from pallas.executors.fastagent import auth_seam, send_gate
from pallas.executors.fastagent.journaled_calls import JournaledCalls
from pallas.executors.fastagent.server_settings import settings_of_entry, transport_of
from pallas.model.refusals import taken_over


async def unchanged(offer: Offer) -> Offer:
    """Use it as it is."""
    return offer


def test_the_settings_of_a_server_carry_the_choice_to_the_seam() -> None:
    auth = MCPServerAuthSettings.model_validate({"oauth": False, "pallas_forward": True})
    assert auth.model_extra == {"pallas_forward": True}
    server = MCPServerSettings(name="rec", url="http://127.0.0.1:9/mcp", auth=auth)
    assert server.auth is not None
    assert server.auth.model_extra == {"pallas_forward": True}
    assert "ping_interval_seconds" in MCPServerSettings.model_fields


def test_a_servers_entry_makes_the_credential_of_its_requests() -> None:
    auth = MCPServerAuthSettings.model_validate({"oauth": False, "pallas_forward": True})
    entry = MCPServerSettings(name="rec", url="http://127.0.0.1:9/mcp", auth=auth)
    lent = BearerLease("r", "one", "lent", lambda event: None)

    def sent(url: str, headers: dict[str, str]) -> str | None:
        async def first() -> httpx2.Request:
            flow = auth_seam.downstream_auth("rec", entry, headers).async_auth_flow(
                httpx2.Request("POST", url, headers=headers)
            )
            request = await anext(flow)
            await flow.aclose()
            return request

        with lending(lent, LeaseSlot()):
            return asyncio.run(first()).headers.get("authorization")

    assert sent("http://127.0.0.1:9/mcp", {}) == "Bearer lent"
    assert sent("http://127.0.0.2:9/mcp", {}) is None  # another origin
    assert sent("http://127.0.0.1:9/mcp", {"Authorization": "Bearer own"}) == "Bearer own"
    entry.auth = None
    assert sent("http://127.0.0.1:9/mcp", {}) is None


async def test_a_401_starts_no_flow_of_oauth() -> None:
    seen: list[tuple[str, str]] = []

    async def refuse(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        seen.append((request.method, request.url.path))
        where = f"{request.base_url}.well-known/oauth-protected-resource"
        return Response(status_code=401, headers={"www-authenticate": f'Bearer resource_metadata="{where}"'})

    async with serving(FakeDownstream(refuse)) as origin:
        entry = MCPServerSettings(name="rec", url=f"{origin}/mcp")
        transport: Any = transport_of("rec", entry, None)
        connection = Connection("rec", transport, settings_of_entry(entry), Callbacks(), Watch(unchanged), {})
        with pytest.raises(Exception):  # noqa: B017 - of which kind is told elsewhere
            await connection.open(60)
        await connection.close()
    assert {path for _, path in seen} == {"/mcp"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_sdk_sends_a_request_in_the_context_of_who_asked(mode: str) -> None:
    # PR-26
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with recording() as recorder:
        auth = auth_seam.DownstreamAuth("rec", recorder.url, forward=True, configured="")
        async with (
            httpx2.AsyncClient(auth=auth, timeout=60) as http,
            Client(streamable_http_client(recorder.url, http_client=http), mode=mode) as client,
        ):

            async def ask(number: int) -> None:
                with lending(
                    BearerLease(str(number), "one", f"token-{number}", lambda event: None), LeaseSlot()
                ):
                    await client.call_tool("note", {"text": str(number)})

            async with asyncio.timeout(30):
                await asyncio.gather(*(asyncio.create_task(ask(number)) for number in range(5)))
        assert {each.text: each.bearer for each in recorder.calls()} == {
            str(number): f"token-{number}" for number in range(5)
        }


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_call_that_a_stopped_process_had_not_sent_yet_is_not_sent_for_a_run_that_another_has(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    is_ours = True

    class Journal:
        part = 0

        async def committed(self) -> None: ...

        async def step_over(self) -> None: ...

        async def still_ours(self) -> None:
            if not is_ours:
                raise taken_over()

        def returned(self, call_id: str, native: str) -> None: ...

    calls = JournaledCalls(Journal(), "r", 1)
    monkeypatch.setattr(send_gate, "RECHECK_SECONDS", -1.0)  # each request comes long after its gate
    async with recording() as recorder, asyncio.timeout(60):
        auth = auth_seam.DownstreamAuth("rec", recorder.url, forward=False, configured="")
        with pytest.raises(Exception) as caught:
            async with (
                httpx2.AsyncClient(auth=auth, timeout=60) as http,
                Client(streamable_http_client(recorder.url, http_client=http), mode=mode) as client,
            ):

                async def note(text: str, is_ours_then: bool) -> None:
                    async def make() -> Any:
                        nonlocal is_ours
                        is_ours = is_ours_then
                        return await client.call_tool("note", {"text": text})

                    await calls.call(text, True, make)

                await note("ours", True)
                await note("another's", False)
        assert "another fleet continues this run" in "".join(format_exception(caught.value))
        assert [each.text for each in recorder.calls()] == ["ours"]
