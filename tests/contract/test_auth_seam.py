"""What forwarding a bearer needs of fast-agent and of the MCP SDK, watched for changes."""

import dataclasses
import inspect
from traceback import format_exception
from typing import Any

import pytest
from fast_agent.config import MCPServerAuthSettings, MCPServerSettings
from fast_agent.mcp import client_gateway
from support.recording import recording

from pallas.access.bearer_lease import BearerLease, LeaseSlot, lending
from pallas.executors.fastagent import auth_seam, send_gate
from pallas.executors.fastagent.journaled_calls import JournaledCalls
from pallas.mcp_client import library_hooks
from pallas.model import Fault
from pallas.model.refusals import taken_over


def test_the_function_that_prepares_credentials_is_there_with_its_parameters() -> None:
    library_hooks.install(auth_seam.PREPARE)
    assert "bearer" in library_hooks.installed(client_gateway, "_prepare_headers_and_auth")
    assert [field.name for field in dataclasses.fields(client_gateway.PreparedHttpAuth)] == [
        "headers",
        "oauth_provider",
        "user_auth_keys",
    ]


def test_a_function_that_takes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(server_config: Any, *, trigger: bool) -> None: ...

    monkeypatch.setattr(client_gateway, "_prepare_headers_and_auth", moved)
    with pytest.raises(Fault, match=r"hook bearer: .*takes \(server_config, trigger\)"):
        library_hooks.install(auth_seam.PREPARE)
    assert client_gateway._prepare_headers_and_auth is moved


def test_the_settings_of_a_server_carry_the_choice_to_the_seam() -> None:
    auth: Any = MCPServerAuthSettings(oauth=False, pallas_forward=True)
    assert auth.model_extra == {"pallas_forward": True}
    server = MCPServerSettings(name="rec", url="http://127.0.0.1:9/mcp", auth=auth)
    assert server.auth is not None
    assert server.auth.model_extra == {"pallas_forward": True}
    assert "ping_interval_seconds" in MCPServerSettings.model_fields


def test_what_the_seam_returns_is_what_the_http_client_is_made_of() -> None:
    source = inspect.getsource(client_gateway._create_transport)
    assert "prepared_auth = _prepare_headers_and_auth(" in source
    assert "auth=prepared_auth.oauth_provider" in source


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_the_sdk_sends_a_request_in_the_context_of_who_asked(mode: str) -> None:
    # PR-26
    import asyncio

    import httpx2
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
    import asyncio

    import httpx2
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
        assert "another fleet goes on with this run" in "".join(format_exception(caught.value))
        assert [each.text for each in recorder.calls()] == ["ours"]
