"""What is too large is refused in words before anything is lost: over real connections of both eras."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from starlette.applications import Starlette
from support.fake_downstreams import serving
from support.live import ERAS, agent_module, ask, client, running, write_project

from pallas.bounds import MAX_MESSAGE as MAX_EVENT
from pallas.bounds.sizes import MAX_BODY, MAX_RESULT
from pallas.fleet.fleet import Fleet

PNG = b"\x89PNG\r\n\x1a\n"
FETCH = '***CALL_TOOL large__fetch {{"size": {}}}'
# One event of an official client; what is kept below it is for the JSON around the text.
CLIENT_EVENT = 1024 * 1024

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", ERAS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    large: MCPServer[Any] = MCPServer("large")

    @large.tool(structured_output=False)
    async def fetch(size: int, ctx: Context[Any, Any]) -> str:
        """So many characters, after a word of progress: so that they come as one event of a stream."""
        await ctx.report_progress(1, None, "on its way")
        return "y" * size

    app = large.streamable_http_app()
    async with _living(app), serving(app) as origin:
        root = write_project(
            tmp_path_factory.mktemp("sizes"),
            {
                "harper": agent_module("harper", ("large",)),
                "eyes": agent_module("eyes", model="generic.eyes"),
            },
            config={
                # Nobody is there: what is refused is refused before a model is asked.
                "generic": {"base_url": "http://127.0.0.1:9/v1", "api_key": "offline"},
                "mcp": {"servers": {"large": {"url": f"{origin}/mcp", "auth": {"oauth": False}}}},
            },
            keys={
                "eyes": {"model_capabilities": {"vision": True}},
                # A window in which the largest answer there is can stay as it is.
                "harper": {"model_capabilities": {"context_window": 1_000_000}},
            },
        )
        async with running(root) as running_fleet:
            yield running_fleet


@asynccontextmanager
async def _living(app: Starlette) -> AsyncIterator[None]:
    """The app's lifespan, in a task of its own: a fixture may end in another than it began in."""
    started, stop = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.router.lifespan_context(app):
            started.set()
            await stop.wait()

    task = asyncio.create_task(live())
    await started.wait()
    try:
        yield
    finally:
        stop.set()
        await task


def _url(fleet: Fleet, agent: str = "harper") -> str:
    return next(each.url for each in fleet.agents if each.name == agent)


async def _fault(fleet: Fleet, era: str, arguments: dict[str, Any], agent: str = "harper") -> dict[str, Any]:
    async with client(fleet, agent, era=era) as connected:
        result = await connected.call_tool("send_message", arguments)
    assert result.is_error
    body: dict[str, Any] = json.loads(result.content[0].text)  # type: ignore[union-attr]
    return body


@both_eras
async def test_a_request_above_the_limit_says_both_sizes_and_the_fix(fleet: Fleet, era: str) -> None:
    handle = f"body-{era}"
    async with client(fleet, "harper", era=era) as harper:
        await ask(harper, "before", conversation_id=handle)
        with pytest.raises(MCPError) as caught:
            await ask(harper, "x" * (MAX_BODY + 1), conversation_id=handle)
        assert f"at most {MAX_BODY}" in caught.value.error.message
        assert "make images smaller" in caught.value.error.message
        data = caught.value.error.data
        assert data["limit"] == MAX_BODY < data["size"] < MAX_BODY + 2_000
        assert (data["type"], data["retryable"]) == ("PROTOCOL", False)
        # The same connection goes on, and the conversation is as it was.
        await ask(harper, "after", conversation_id=handle)
        prompt = await harper.get_prompt("harper_history", {"conversation_id": handle})
        said = [message.content.text for message in prompt.messages]  # type: ignore[union-attr]
        assert said == ["before", "before", "after", "after"]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_above_the_limit_is_a_json_rpc_error_with_status_413(
    fleet: Fleet, declared: bool
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(6):
            yield b"x" * 1024 * 1024

    content: Any = b"x" * (6 * 1024 * 1024) if declared else pieces()
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        response = await http.post(_url(fleet), content=content, headers={"content-type": "application/json"})
    assert response.status_code == 413
    body = response.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", None)
    assert f"at most {MAX_BODY}" in body["error"]["message"]


@both_eras
async def test_a_request_just_below_the_limit_arrives(fleet: Fleet, era: str) -> None:
    body = await _fault(fleet, era, {"message": "x" * (MAX_BODY - 4_000)})
    assert body["data"]["type"] == "PROTOCOL"
    assert "2097152" in body["error"]  # it arrived: the message's own limit refused it


@both_eras
async def test_an_answer_no_client_could_receive_is_kept_and_readable(fleet: Fleet, era: str) -> None:
    handle, text = f"answer-{era}", "é" * (MAX_RESULT // 2)  # two bytes each
    body = await _fault(fleet, era, {"message": text, "conversation_id": handle})
    assert f"at most {MAX_RESULT}" in body["error"]
    assert "ask there for a part of it" in body["error"]
    assert body["data"] == {
        "type": "UPSTREAM",
        "retryable": False,
        "size": MAX_RESULT + 2,
        "limit": MAX_RESULT,
        "conversation_id": handle,
    }
    async with client(fleet, "harper", era=era) as harper:
        assert await ask(harper, "go on", conversation_id=handle) == "go on"
        # Four messages, of which the two old ones have 900 KB each: an official client can read it.
        prompt = await harper.get_prompt("harper_history", {"conversation_id": handle})
    texts = [message.content.text for message in prompt.messages]  # type: ignore[union-attr]
    assert texts[-2:] == ["go on", "go on"]
    assert texts[0] == (
        "[1 earlier messages are left out: the conversation is larger than an MCP client can receive; the "
        "agent remembers all of it]"
    )
    assert texts[1].startswith("é" * 1000)
    assert "characters more" in texts[1]
    assert MAX_RESULT * 0.9 < len(prompt.model_dump_json().encode()) < CLIENT_EVENT


@both_eras
async def test_an_answer_to_a_call_without_conversation_can_still_be_asked_about(
    fleet: Fleet, era: str
) -> None:
    async with client(fleet, "harper", era=era) as harper:
        result = await harper.call_tool("send_message", {"message": "x" * MAX_RESULT})
        assert result.is_error
        body = json.loads(result.content[0].text)  # type: ignore[union-attr]
        handle = body["data"].get("conversation_id")
        assert (handle is None) == (era == "legacy")  # there the session is the conversation
        arguments = {"conversation_id": handle} if handle else {}
        prompt = await harper.get_prompt("harper_history", arguments)
        assert prompt.messages[-1].content.text.startswith("x" * 1000)  # type: ignore[union-attr]


@both_eras
async def test_a_large_answer_below_the_limit_arrives_whole(fleet: Fleet, era: str) -> None:
    async with client(fleet, "harper", era=era) as harper:
        seen: list[Any] = []

        async def progress(*what: Any) -> None:
            seen.append(what)  # with progress the answer is one event of a stream in both eras

        text = "x" * (MAX_RESULT - 2)
        result = await harper.call_tool("send_message", {"message": text}, progress_callback=progress)
        assert seen
        assert result.content[0].text == text  # type: ignore[union-attr]


@both_eras
async def test_a_downstreams_large_result_reaches_the_agent(fleet: Fleet, era: str) -> None:
    size = 2 * CLIENT_EVENT  # twice what the SDK's client takes unless it is told otherwise
    async with client(fleet, "harper", era=era) as harper:
        text = await ask(harper, FETCH.format(size))
        # fast-agent shows the model its beginning and its end, and says so.
        assert "y" * 5_000 in text
        assert f"of {size} bytes" in text


@both_eras
async def test_a_downstreams_result_above_our_own_limit_fails_the_call_in_words(
    fleet: Fleet, era: str
) -> None:
    async with client(fleet, "harper", era=era) as harper:
        text = await ask(harper, FETCH.format(MAX_EVENT + 1))
        assert "y" * 100 not in text
        assert str(MAX_EVENT) in text
        assert await ask(harper, "still there?") == "still there?"


@both_eras
@pytest.mark.parametrize(
    ("images", "says"),
    [
        ([(b"hello", "image/png")], "images[0] is not a PNG, JPEG, GIF or WebP picture"),
        ([(PNG, "image/jpeg")], "images[0].mime_type is 'image/jpeg', but its bytes are image/png"),
        ([(PNG, "text/html")], "but its bytes are image/png"),
        ([(PNG, "image/png"), (b"", "image/png")], "images[1] is not a PNG"),
        ([(PNG, "image/png")] * 50, "50 images; at most 20 go with one message"),
        ([(PNG + b"\0" * 3_000_000, "image/png")], "images[0] has 3000008 bytes; at most 3000000: make it"),
    ],
)
async def test_pictures_that_cannot_be_taken_are_refused_with_the_reason(
    fleet: Fleet, era: str, images: list[tuple[bytes, str]], says: str
) -> None:
    # PR-17
    sent = [{"data": base64.b64encode(data).decode(), "mime_type": kind} for data, kind in images]
    body = await _fault(fleet, era, {"message": "see", "images": sent}, "eyes")
    assert says in body["error"]
    assert body["data"]["type"] == "PROTOCOL"


@both_eras
async def test_what_is_no_base64_and_what_is_no_list_are_refused(fleet: Fleet, era: str) -> None:
    # PR-17
    broken = [{"data": "iVBOR w0KGgo=!", "mime_type": "image/png"}]
    assert (
        "images[0].data is not base64"
        in (await _fault(fleet, era, {"message": "see", "images": broken}, "eyes"))["error"]
    )
    assert (
        "images is not a list"
        in (await _fault(fleet, era, {"message": "see", "images": "x"}, "eyes"))["error"]
    )


@both_eras
async def test_no_images_are_plain_text(fleet: Fleet, era: str) -> None:
    # PR-17
    async with client(fleet, "harper", era=era) as harper:
        assert await ask(harper, "just words", images=[]) == "just words"


@both_eras
async def test_a_bad_picture_in_given_history_costs_its_row_and_no_more(fleet: Fleet, era: str) -> None:
    # PR-18
    rows = [
        {"role": "user", "content": "see", "images": [{"data": "AAAA", "mime_type": "image/png"}]},
        {"role": "assistant", "content": "kept"},
    ]
    handle = f"rows-{era}"
    async with client(fleet, "harper", era=era) as harper:
        await ask(harper, "now", conversation_id=handle, history=rows)
        prompt = await harper.get_prompt("harper_history", {"conversation_id": handle})
        said = [message.content.text for message in prompt.messages]  # type: ignore[union-attr]
        assert said == ["kept", "now", "now"]
