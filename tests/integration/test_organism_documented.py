"""Organisms as they are written for xml-pipeline, served unchanged."""

import asyncio
import json
import os
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from support import pallas_process
from support.live import ERAS, ask, client, running
from support.organisms import write_research
from support.ports import free_ports
from support.project_modules import module_at
from support.waiting import until

from pallas.cli.check import check
from pallas.fleet.fleet import Fleet


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
async def test_the_documented_file_loads_unchanged_and_its_agent_uses_its_tools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # HC-34, HC-15: gateways in peers, imports of xml-pipeline, TLS, every section of the example
    trusted = write_research(tmp_path)
    assert await asyncio.to_thread(check, tmp_path, do_import=True) == 0
    out, err = capsys.readouterr()
    assert "ok: 6 agents" in out
    assert "listeners[3].peers: web_search is a gateway, and messages to it are not delivered" in err
    assert "error" not in err
    async with running(tmp_path) as fleet:
        url = next(each.url for each in fleet.agents if each.name == "researcher")
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=trusted)
        for era in ERAS:
            async with (
                httpx2.AsyncClient(verify=trusting, trust_env=False, timeout=30) as http,
                Client(
                    streamable_http_client(url.replace("127.0.0.1", "localhost"), http_client=http), mode=era
                ) as connected,
            ):
                assert await ask(connected, '{"query": "numbers"}') == '{"answer": "it is 20"}'
                # HC-15: an agent can send to nobody but its peers, and a gateway is none
                assert await ask(connected, '{"query": "elsewhere"}') == '{"answer": "SystemError: routing"}'


FORWARDING = """
from dataclasses import dataclass
from pathlib import Path

from third_party.xmlable import xmlify
from agentserver.message_bus.message_state import HandlerMetadata, HandlerResponse


@xmlify
@dataclass
class Greeting:
    name: str
    how_often: int = 1


@xmlify
@dataclass
class GreetingResponse:
    message: str
    original_sender: str


@xmlify
@dataclass
class ShoutedResponse:
    message: str


@xmlify
@dataclass
class ConsolePrompt:
    output: str = ""
    source: str = ""
    show_banner: bool = False


@xmlify
@dataclass
class ConsoleInput:
    text: str = ""
    target: str = ""


LINES = [f"caller {number}" for number in range(12)]
SHOWN = []


async def greet(payload: Greeting, metadata: HandlerMetadata) -> HandlerResponse:
    words = " and ".join([f"hello {payload.name}"] * payload.how_often)
    return HandlerResponse(payload=GreetingResponse(words, "response-handler"), to="shouter")


async def shout(payload: GreetingResponse, metadata: HandlerMetadata) -> HandlerResponse:
    assert metadata.usage_instructions == ""
    return HandlerResponse(payload=ShoutedResponse(payload.message.upper()), to=payload.original_sender)


async def heard(payload: ShoutedResponse, metadata: HandlerMetadata) -> HandlerResponse | None:
    with Path(__file__).with_name("heard.txt").open("a") as file:
        file.write(f"{payload.message} of {metadata.from_id}\\n")
    if payload.message in ("HELLO QUIET", "HI"):
        return None
    return HandlerResponse(payload=ConsolePrompt(output=payload.message, source="shouter"), to="console")


async def console(payload: ConsolePrompt, metadata: HandlerMetadata) -> HandlerResponse | None:
    SHOWN.append((payload.output, payload.source, payload.show_banner))
    if not LINES:
        return None
    return HandlerResponse(payload=ConsoleInput(text=LINES.pop(0), target="greeter"), to="console-router")


async def routed(payload: ConsoleInput, metadata: HandlerMetadata) -> HandlerResponse | None:
    if payload.text == "nobody":
        return HandlerResponse(payload=ConsolePrompt(output="unknown", source="router"), to="console")
    return HandlerResponse(payload=Greeting(name=payload.text), to=payload.target)


async def old(payload: Greeting, metadata: HandlerMetadata) -> bytes:
    sender = "" if payload.name == "no from" else "<from>old</from>"
    meta = "" if payload.name == "no meta" else f"<meta>{sender}<to>shouter</to><thread>t</thread></meta>"
    fields = "<Message>hi</Message><OriginalSender>response-handler</OriginalSender>"
    body = f'<GreetingResponse xmlns="">{fields}</GreetingResponse>'
    bodies = body * 2 if payload.name == "two" else body
    return f'<message xmlns="https://xml-pipeline.org/ns/envelope/v1">{meta}{bodies}</message>'.encode()
"""
FORWARDS = """\
organism:
  name: hello-world
  port: PORT
max_concurrent_pipelines: 50
max_concurrent_handlers: 20
max_concurrent_per_agent: 5
thread_scheduling: breadth-first
llm:
  strategy: failover
  retries: 3
  backends:
    - provider: xai
      api_key_env: XAI_API_KEY
      rate_limit_tpm: 100000
listeners:
  - name: greeter
    payload_class: handlers.hello.Greeting
    handler: handlers.hello.greet
    description: Greets, and forwards to shouter
    agent: true
    peers: [shouter]
    prompt: |
      You greet people.
  - name: shouter
    payload_class: handlers.hello.GreetingResponse
    handler: handlers.hello.shout
    description: Shouts the greeting
    agent: false
  - name: response-handler
    payload_class: handlers.hello.ShoutedResponse
    handler: handlers.hello.heard
    description: Hears what was shouted
  - name: old
    payload_class: handlers.hello.Greeting
    handler: handlers.hello.old
    description: Writes envelopes by itself
"""
CONSOLE = """\
  - name: console-router
    payload_class: handlers.hello.ConsoleInput
    handler: handlers.hello.routed
    description: Sends lines where they belong
  - name: console
    payload_class: handlers.hello.ConsolePrompt
    handler: handlers.hello.console
    description: Shows, and asks for lines
"""


def hello(root: Path, listeners: str = "", code: str = FORWARDING) -> Path:
    (port,) = free_ports(1)
    (root / "handlers").mkdir(parents=True)
    (root / "handlers" / "__init__.py").write_text("")
    (root / "handlers" / "hello.py").write_text(code)
    (root / "organism.yaml").write_text(FORWARDS.replace("PORT", str(port)) + listeners)
    return root / "handlers" / "heard.txt"


REGISTERS = """
from agentserver.message_bus.todo_registry import get_todo_registry
from xml_pipeline.primitives import TextInput, TextOutput


async def greet(payload: Greeting, metadata: HandlerMetadata) -> HandlerResponse:
    from agentserver.console.console_registry import get_console

    assert get_console() is None
    todos = get_todo_registry()
    if not isinstance(payload, Greeting):
        [raised] = todos.get_raised_for(metadata.thread_id, metadata.own_name)
        assert raised.id in metadata.todo_nudge and raised.wait_for == "GreetingResponse"
        assert todos.close(raised.id) and not todos.close(raised.id)
        return HandlerResponse.respond(TextOutput(f"{payload.message} {raised.description}"))
    todos.register(metadata.thread_id, metadata.own_name, "GreetingResponse", "old", "for " + payload.name)
    assert len(todos.get_pending_for(metadata.thread_id, metadata.own_name)) == 1
    return HandlerResponse(Greeting("back"), to="old")


async def old(payload: Greeting, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(GreetingResponse("hi", ""))


async def texts(payload: TextInput, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(TextOutput(f"{payload.text} from {payload.source}"))
"""
TEXTS = """\
  - name: texts
    payload_class: xml_pipeline.primitives.TextInput
    handler: handlers.hello.texts
    description: Takes text
"""


async def test_todos_of_the_registry_and_payloads_of_the_package_work(tmp_path: Path) -> None:
    # HC-34, HC-35
    hello(tmp_path, TEXTS, FORWARDING + REGISTERS)
    organism = tmp_path / "organism.yaml"
    organism.write_text(organism.read_text().replace("peers: [shouter]", "peers: [shouter, old]"))
    async with running(tmp_path) as fleet:
        for era in ERAS:
            async with client(fleet, "greeter", era=era) as caller:
                answer = await ask(caller, '{"name": "ann"}')
                assert json.loads(answer) == {"text": "hi for ann", "status": "ok"}
            async with client(fleet, "texts", era=era) as caller:
                assert await ask(caller, "hello") == "hello from console"


READS = """
import asyncio
import sys


async def console(payload: ConsolePrompt, metadata: HandlerMetadata) -> HandlerResponse | None:
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if not line:
        return None
    return HandlerResponse(payload=ConsoleInput(text=line.strip(), target="greeter"), to="console-router")
"""


@pytest.mark.slow
async def test_an_organisms_console_reads_the_input_of_a_served_fleet(tmp_path: Path) -> None:
    # HC-26
    heard = hello(tmp_path / "project", CONSOLE, FORWARDING + READS)
    process = await pallas_process.start_async(
        *("--serve", "--project", str(tmp_path / "project")),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "PALLAS_LOG_FILE": str(tmp_path / "served.log")},
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"ann\nbob\n")
        await until(lambda: heard.exists() and heard.read_text().count("\n") == 2, timeout=60)
        assert heard.read_text() == "HELLO ANN of shouter\nHELLO BOB of shouter\n"
    finally:
        process.stdin.close() if process.stdin is not None else None
        process.terminate()
        await asyncio.wait_for(process.wait(), 60)


async def refusals(fleet: Fleet, name: str) -> Any:
    async with client(fleet, "old") as caller:
        return await caller.call_tool("send_message", {"message": json.dumps({"name": name})})


async def test_listeners_that_are_no_agents_forward_freely_and_envelopes_are_checked(tmp_path: Path) -> None:
    # HC-15, HC-34, HC-21
    heard = hello(tmp_path)
    async with running(tmp_path) as fleet:
        for era in ERAS:
            async with client(fleet, "greeter", era=era) as caller:
                # HC-23: as xmlify writes it
                text = "<Greeting><Name>quiet</Name><HowOften>1</HowOften></Greeting>"
                assert await ask(caller, text) == ""
        assert heard.read_text() == "HELLO QUIET of shouter\n" * 2
        heard.unlink()
        await refusals(fleet, "one")
        assert heard.read_text() == "HI of shouter\n"
        for name in ("two", "no meta", "no from"):
            result = await refusals(fleet, name)
            assert result.is_error, result
        assert heard.read_text() == "HI of shouter\n"


async def test_an_organisms_own_console_is_prompted_until_it_returns_none(tmp_path: Path) -> None:
    # HC-26: more lines than there may be frames below each other, and one that ends elsewhere
    code = FORWARDING.replace("SHOWN = []", 'LINES += ["nobody", "quiet", "last"]\nSHOWN = []')
    hello(tmp_path, CONSOLE, code)
    async with running(tmp_path) as fleet:
        shown = module_at(tmp_path, "handlers.hello").SHOWN
        await until(lambda: len(shown) >= 16)
        assert shown == [
            ("", "system", True),
            *((f"HELLO CALLER {number}", "shouter", False) for number in range(12)),
            ("unknown", "router", False),
            ("", "system", False),
            ("HELLO LAST", "shouter", False),
        ]
        await until(lambda: not fleet.messaging.open_frames)
        async with client(fleet, "greeter") as caller:
            assert await ask(caller, "quiet") == ""
        assert len(shown) == 16
