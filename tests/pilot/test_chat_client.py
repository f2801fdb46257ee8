import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.echo_agent import MARKDOWN, EchoAgent
from support.recording import recording
from support.waiting import until

from pallas.model import Fault, FaultType, Image
from pallas_tui.chat.chat_entry import Trace
from pallas_tui.chat.conversation import ChatConversation, TurnEntry
from pallas_tui.chat.mcp_talk import ERAS as TALK_ERAS
from pallas_tui.chat.mcp_talk import Options, Talk
from pallas_tui.chat_client import ChatClient, Era
from pallas_tui.mcp_link import McpLink, is_plain

ERAS: tuple[Era, ...] = ("auto", "legacy")


@pytest.fixture
async def agent() -> AsyncIterator[EchoAgent]:
    async with EchoAgent() as agent:
        yield agent


@pytest.fixture(params=ERAS)
async def client(agent: EchoAgent, request: pytest.FixtureRequest) -> AsyncIterator[ChatClient]:
    client = ChatClient(agent.url, "chat-one", era=request.param)
    yield client
    await client.close()


async def test_an_answer_comes_with_its_progress_in_order(client: ChatClient) -> None:
    heard: list[str] = []
    reply = await client.send("work hard", on_progress=heard.append)
    assert reply.text == "did the work: work hard"
    assert reply.fault is None
    assert reply.seconds > 0
    assert heard == [
        "echo step 1 (llm)",
        "echo » Let me look.",
        "echo step 2 (tool)",
        "docs/search: started",
        "docs/search: completed",
        "echo step 3 (llm)",
    ]


async def test_one_client_is_one_conversation_and_two_are_two(agent: EchoAgent, client: ChatClient) -> None:
    # PR-19
    other = ChatClient(agent.url, "chat-two", era=client.era)
    try:
        assert (await client.send("count")).text == "message 1 of this conversation"
        assert (await client.send("count")).text == "message 2 of this conversation"
        assert (await other.send("count")).text == "message 1 of this conversation"
    finally:
        await other.close()


async def test_images_arrive_as_they_were_read(client: ChatClient) -> None:
    # PR-17
    image = Image("iVBORw0KGgo=", "image/png")
    assert (await client.send("picture", [image, image])).text == "image/png 8; image/png 8"


async def test_an_error_result_becomes_a_fault_of_its_type(client: ChatClient) -> None:
    reply = await client.send("fault")
    assert reply.text == ""
    assert reply.fault is not None
    assert reply.fault.type is FaultType.UPSTREAM
    assert reply.fault.retryable
    assert reply.fault.message == "the model is overloaded; try again in a minute"


async def test_an_agent_that_raises_is_told_in_its_own_words(client: ChatClient) -> None:
    reply = await client.send("crash")
    assert reply.fault is not None
    assert "boom in the agent" in reply.fault.message or "send_message" in reply.fault.message


async def test_text_from_the_agent_cannot_drive_the_terminal(client: ChatClient) -> None:
    heard: list[str] = []
    reply = await client.send("hostile", on_progress=heard.append)
    for text in (reply.text, *heard):
        assert "\x1b" not in text
        assert "\u202e" in text  # data; the screen shows it
    assert "␛]52" in reply.text


async def test_an_answer_above_one_mebibyte_arrives(client: ChatClient) -> None:
    reply = await client.send("big", on_progress=lambda _: None)
    assert reply.text.startswith("xxx")
    assert reply.text.endswith("…")
    assert len(reply.text) == 1_000_000


async def test_cancelling_the_call_cancels_the_run_on_the_server(
    agent: EchoAgent, client: ChatClient
) -> None:
    heard: list[str] = []
    task = asyncio.create_task(client.send("hold", on_progress=heard.append))
    await until(lambda: "echo » so good" in heard)
    task.cancel()
    await until(lambda: agent.cancelled == 1)
    assert task.cancelled()
    assert (await client.send("hello")).text == "you said: hello"


async def test_nobody_listening_is_said_with_what_to_do(agent: EchoAgent) -> None:
    url = agent.url
    await agent.__aexit__()
    client = ChatClient(url, "chat-none")
    with pytest.raises(Fault, match=r"Nothing answers at .*; ?|Agents pane") as failed:
        await client.send("hello")
    assert failed.value.type is FaultType.TRANSPORT
    assert failed.value.retryable
    assert url in failed.value.message


async def test_an_agent_that_wants_a_credential_is_told_as_that(agent: EchoAgent, client: ChatClient) -> None:
    agent.wants_key = True
    with pytest.raises(Fault, match="asks for a credential") as failed:
        await client.send("hello")
    assert failed.value.type is FaultType.AUTH
    agent.wants_key = False
    assert (await client.send("hello")).text == "you said: hello"


@pytest.mark.parametrize("era", ERAS)
async def test_a_restarted_agent_is_reached_again_without_being_told(era: Era) -> None:
    async with EchoAgent() as first:
        client = ChatClient(first.url, "chat-again", era=era)
        assert (await client.send("hello")).text == "you said: hello"
        port = first.port
    try:
        async with EchoAgent(port=port):
            # The first message may find the old connection broken; the second must not.
            try:
                text = (await client.send("again")).text
            except Fault as fault:
                assert fault.retryable
                text = (await client.send("again")).text
            assert text == "you said: again"
    finally:
        await client.close()


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_that_dies_in_the_middle_is_told_as_a_broken_connection(era: Era) -> None:
    async with EchoAgent() as agent:
        client = ChatClient(agent.url, "chat-dies", era=era)
        task = asyncio.create_task(client.send("hold", on_progress=lambda _: None))
        await until(agent.held.is_set)
        agent.hang_up()
        with pytest.raises(Fault) as failed:
            await asyncio.wait_for(task, 60)
        assert failed.value.retryable
        assert "broke off" in failed.value.message
    await client.close()


async def test_a_listener_that_never_speaks_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and is never accepted
        port = silent.getsockname()[1]
        client = ChatClient(f"http://127.0.0.1:{port}/mcp", "chat-mute", connect_timeout=0.3)
        with pytest.raises(Fault, match="No answer") as failed:
            await client.send("hello")
        assert failed.value.type is FaultType.TIMEOUT


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_that_takes_too_long_is_given_up_on_and_told_to_stop(
    agent: EchoAgent, era: Era
) -> None:
    client = ChatClient(agent.url, "chat-slow", era=era, read_timeout=0.5)
    try:
        with pytest.raises(Fault, match=r"No answer .* within 0\.5 s") as failed:
            await client.send("hold")
        assert failed.value.type is FaultType.TIMEOUT
        await until(lambda: agent.cancelled == 1)
    finally:
        await client.close()


async def test_a_web_server_that_is_no_agent_is_called_so() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10_000)
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = ChatClient(f"http://127.0.0.1:{port}/mcp", "chat-web", connect_timeout=60)
    try:
        with pytest.raises(Fault, match="an agent's MCP endpoint") as failed:
            await client.send("hello")
        assert failed.value.type is FaultType.PROTOCOL
    finally:
        server.close()


async def test_a_message_beyond_the_request_limit_is_refused_before_sending(client: ChatClient) -> None:
    with pytest.raises(Fault, match="smaller"):
        await client.send("look", [Image("A" * 4_200_000, "image/png")])


async def test_markdown_arrives_unchanged(client: ChatClient) -> None:
    pieces: list[str] = []
    reply = await client.send("markdown", on_progress=pieces.append)
    assert reply.text == MARKDOWN
    assert "".join(piece.removeprefix("echo » ") for piece in pieces) == MARKDOWN


@pytest.mark.slow
def test_nothing_of_mcp_is_imported_before_the_first_message() -> None:
    code = (
        "import sys, pallas_tui.chat_client;"
        "pallas_tui.chat_client.ChatClient('http://127.0.0.1:1/mcp', 'x');"
        "print([m for m in ('mcp', 'httpx2', 'mcp_types') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout.strip() == "[]"


async def test_an_agent_is_told_what_was_said_before(agent: EchoAgent, client: ChatClient) -> None:
    before = [TurnEntry("user", "one"), TurnEntry("assistant", "two", (Image("iVBORw0KGgo=", "image/png"),))]
    assert (await client.send("recall", history=before)).text == "one | two"
    assert agent.calls[0]["history"][1]["images"] == [{"data": "iVBORw0KGgo=", "mime_type": "image/png"}]
    assert (await client.send("recall")).text == "one | two | recall"


async def test_what_is_too_much_to_tell_is_left_out_from_the_old_end(client: ChatClient) -> None:
    before = [
        TurnEntry("user", "x" * 3_000_000),
        TurnEntry("assistant", "y" * 2_000_000),
        TurnEntry("user", "last"),
    ]
    reply = await client.send("recall", history=before)
    assert reply.text == f"{'y' * 2_000_000} | last"[: len(reply.text) - 1] + "…"
    assert "newest 2 of the 3 messages" in reply.note


async def test_the_trace_goes_along_and_the_figures_come_back(agent: EchoAgent, client: ChatClient) -> None:
    trace = Trace()
    reply = await client.send("delegate", traceparent=trace.parent)
    assert agent.metas[-1]["traceparent"] == f"00-{trace.trace_id}-{trace.span_id}-01"
    assert (reply.tokens_in, reply.tokens_out, reply.run_id) == (1000, 100, "run-of-echo")
    assert (reply.steps, reply.tools) == (3, 3)


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_that_takes_only_a_message_gets_only_that(era: Era) -> None:
    async with EchoAgent(plain=True) as agent:
        client = ChatClient(agent.url, "chat-plain", era=era)
        try:
            assert (await client.send("hello")).text == "you said: hello"
            reply = await client.send(
                "recall it", history=[TurnEntry("user", "one"), TurnEntry("assistant", "two")]
            )
            assert (
                agent.calls[-1]["message"]
                == "What was said before:\n\nuser: one\n\nassistant: two\n\nuser: recall it"
            )
            assert "takes no history" in reply.note
            with pytest.raises(Fault, match="takes no images"):
                await client.send("look", [Image("iVBORw0KGgo=", "image/png")])
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("era", "protocol"), [("auto", "2026-07-28"), ("modern", "2026-07-28"), ("legacy", "2025")]
)
async def test_the_era_is_spoken_that_was_chosen(agent: EchoAgent, era: Era, protocol: str) -> None:
    client = ChatClient(agent.url, "chat-era", era=era)
    try:
        assert client.protocol == ""
        assert (await client.send("hello")).text == "you said: hello"
        assert client.protocol.startswith(protocol)
        assert ("initialize" in agent.rpc) is (era == "legacy")
    finally:
        await client.close()


async def test_the_modern_era_only_does_not_fall_back() -> None:
    async with EchoAgent(only="handshake") as agent:
        client = ChatClient(agent.url, "chat-modern", era="modern")
        try:
            with pytest.raises(Fault):
                await client.send("hello")
            assert "initialize" not in agent.rpc
        finally:
            await client.close()


async def test_a_bearer_goes_with_every_request_and_can_be_taken_away(agent: EchoAgent) -> None:
    token = "tok-one"
    agent.key = "tok-one"
    client = ChatClient(agent.url, "chat-key", bearer=lambda: token)
    try:
        assert (await client.send("hello")).text == "you said: hello"
        assert set(agent.bearers) == {"Bearer tok-one"}
        token = "tok-two"
        with pytest.raises(Fault, match="refuses the bearer of this conversation") as refused:
            await client.send("hello")
        assert refused.value.type is FaultType.AUTH
        assert "tok-" not in refused.value.message
        token = ""
        with pytest.raises(Fault, match="none was sent"):
            await client.send("hello")
        assert agent.bearers[-1] == ""
    finally:
        await client.close()


async def test_a_bearer_never_follows_a_redirect_to_another_place() -> None:
    async with recording() as thief, recording() as server:
        server.moved_to = thief.url
        link = McpLink(server.url, bearer=lambda: "tok-private")
        try:
            with pytest.raises(Fault):
                await link.call("note", {"text": "hello"})
        finally:
            await link.close()
        assert {heard.authorization for heard in server.requests} == {"Bearer tok-private"}
        assert not [heard for heard in thief.requests if heard.authorization]


async def test_a_bearer_goes_to_another_machine_in_clear_only_when_that_was_allowed() -> None:
    asked: list[str] = []

    def bearer() -> str:
        asked.append("x")
        return "tok-private"

    url = "http://192.0.2.1:9/mcp"  # nobody answers there
    client = ChatClient(url, "chat-clear", bearer=bearer, connect_timeout=0.2)
    with pytest.raises(Fault, match=r"http://192\.0\.2\.1:9 unencrypted") as refused:
        await client.send("hello")
    assert refused.value.type is FaultType.CONFIG
    allowed = ChatClient(url, "chat-clear", bearer=bearer, plain_allowed=True, connect_timeout=0.2)
    with pytest.raises(Fault) as failed:
        await allowed.send("hello")
    assert failed.value.type is not FaultType.CONFIG


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("http://127.0.0.1:1/mcp", False),
        ("http://localhost:1/mcp", False),
        ("http://[::1]:1/mcp", False),
        ("https://example.org/mcp", False),
        ("http://example.org/mcp", True),
        ("http://localhost.example.org/mcp", True),
        ("http://10.0.0.1/mcp", True),
    ],
)
def test_what_can_be_read_on_its_way(url: str, plain: bool) -> None:
    assert is_plain(url) is plain


@pytest.mark.parametrize(("only", "era"), [("handshake", "modern"), ("modern", "handshake")])
async def test_an_era_that_a_server_does_not_speak_is_told_with_the_way_out(only: Any, era: str) -> None:
    async with EchoAgent(only=only) as agent:
        conversation = ChatConversation("echo")
        talk = Talk(conversation, ChatClient, lambda: 1.0, Options(era=TALK_ERAS[era]))
        try:
            await talk.converse(conversation.begin("hello", (), 1.0), agent.url)
            assert conversation.entries[-1].role == "error"
            assert f"({era}): /set protocol auto" in conversation.entries[-1].text
            talk.choose_era("auto")
            run = conversation.retry(2.0)
            assert run is not None
            await talk.converse(run, agent.url)
            assert conversation.entries[-1].text == "you said: hello"
        finally:
            await talk.close()
