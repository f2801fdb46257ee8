"""Questions over MCP with replicas: a call is answered and joined at any of them, in both versions."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.asked import accepting, asked_client
from support.databases import Server, fresh_database
from support.served import Served, served, text_of
from support.survivors import project

ASKS = """
from pallas.asking import ask


async def answer(request):
    first = await ask(f"Who is {request.text}?")
    second = await ask("Sure?")
    return f"{request.text} is {first.text} {second.text}"
"""
HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}


@pytest.fixture
async def replicas(tmp_path: Path, postgres: Server) -> AsyncIterator[list[Served]]:
    async with fresh_database(postgres) as url:
        with ExitStack() as stack:
            fleets = []
            for name in ("one", "two"):
                root = project(tmp_path / name, url, lead={"kind": "handler", "handler": "asks:answer"})
                (root / "asks.py").write_text(ASKS)
                fleets.append(stack.enter_context(served(root)))
            for fleet in fleets:
                await fleet.logs("lead: ready")
            yield fleets


async def unused(params: Any) -> Any:
    raise AssertionError


@pytest.mark.slow
async def test_a_parked_call_is_answered_and_joined_at_another_replica(replicas: list[Served]) -> None:
    one, two = replicas
    async with (
        asked_client(one.url("lead"), "2026-07-28", unused) as here,
        asked_client(two.url("lead"), "2026-07-28", unused) as there,
    ):

        async def call(client: Any, **more: Any) -> Any:
            arguments = {"message": "this"}
            return await client.session.call_tool(
                "send_message", arguments, allow_input_required=True, **more
            )

        async def answered(client: Any, asked: Any, text: str) -> Any:
            ((key, _),) = asked.input_requests.items()
            answers = {key: accepting({"answer": text})}
            return await call(client, input_responses=answers, request_state=asked.request_state)

        # From one to the other and back: without a thread, the run is only where it began.
        second = await answered(there, await call(here), "Ada")
        ((_, request),) = second.input_requests.items()
        assert request.params.message == "Sure?"
        assert text_of(await answered(here, second, "yes")) == "this is Ada yes"
        last = await answered(there, await answered(there, await call(here), "Bob"), "no")
        assert text_of(last) == "this is Bob no"
        # Its replica dies: the caller hears it, and is not left waiting.
        asked = await call(here)
        one.send(signal.SIGKILL)
        lost = await answered(there, asked, "Eve")
        assert lost.is_error


class Session:
    """A session of the handshake version, each request of which may go to another replica."""

    def __init__(self, http: httpx2.AsyncClient, session: str) -> None:
        self.http = http
        self.headers = {**HEADERS, "mcp-session-id": session}

    @classmethod
    async def opened(cls, http: httpx2.AsyncClient, url: str) -> "Session":
        """Open one there."""
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "raw", "version": "1"},
        }
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await http.post(url, json=body, headers=HEADERS)
        session = cls(http, answer.headers["mcp-session-id"])
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await http.post(url, json=note, headers=session.headers)
        return session

    async def call(self, url: str, number: int, asked: asyncio.Queue[Any]) -> str:
        """The text of an answer; what the server asks meanwhile goes to ``asked``."""
        params = {
            "name": "send_message",
            "arguments": {"message": f"m{number}", "conversation_id": f"c{number}"},
        }
        body = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        async with self.http.stream("POST", url, json=body, headers=self.headers) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data:") or not line[5:].strip():
                    continue
                message = json.loads(line[5:])
                if message.get("method") == "elicitation/create":
                    asked.put_nowait(message)
                elif "result" in message:
                    return str(message["result"]["content"][0]["text"])
        raise AssertionError("no answer")

    async def answer(self, url: str, request: Any, text: str) -> None:
        """Answer what the server asked, there."""
        result = {"action": "accept", "content": {"answer": text}}
        body = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        answer = await self.http.post(url, json=body, headers=self.headers)
        assert answer.status_code == 202, answer.text


@pytest.mark.slow
async def test_answers_of_a_session_reach_the_question_they_are_for_from_any_replica(
    replicas: list[Served],
) -> None:
    urls = [each.url("lead") for each in replicas]
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        session = await Session.opened(http, urls[0])
        queues: list[asyncio.Queue[Any]] = [asyncio.Queue(), asyncio.Queue()]
        # A call of the same session at each replica: both ask at once.
        calls = [
            asyncio.create_task(session.call(url, number, queue))
            for number, (url, queue) in enumerate(zip(urls, queues, strict=True), 1)
        ]
        for text in ("first", "second"):
            asked = [await queue.get() for queue in queues]
            assert asked[0]["id"] != asked[1]["id"]
            for number, request in enumerate(asked, 1):  # each answer goes to the other replica
                await session.answer(urls[number % 2], request, f"{text}{number}")
        assert await asyncio.gather(*calls) == ["m1 is first1 second1", "m2 is first2 second2"]
