"""Steps and exchanges hold no secret that the fleet knows, wherever its agent runs. # PR-36"""

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from support.live import agent_module, client, running, write_project
from support.providers import Reply, in_turn, provider

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.fleet.local_port import LocalPort
from pallas.model import RunStarted, StepDetail
from pallas.surfaces.listener import Listener, bind
from pallas.telemetry.log import redact_project
from pallas.telemetry.open_step import MAX_TEXT

pytestmark = pytest.mark.usefixtures("forked_children")

# None has a shape or a name that says what it is.
FLEETS = "fleetsown-51c07ae29b40d8"
HANDED = 'hande"dover\\-83b1f5e06c'
IN_QUERY = "inquery-9e04d17ab35c"
BEARER = "callers-e83c55f1b07d92"
SERVER = '''
import base64, json, os
from stdio_server import StdioServer

server = StdioServer("leaky")
SECRET = os.environ["REGION"]


@server.tool(structured_output=False)
def say(form: str, before: int = 0) -> str:
    """Say the secret."""
    forms = {
        "raw": SECRET,
        "json": json.dumps({"a": json.dumps({"b": json.dumps({"c": SECRET})})}),
        "base64": base64.b64encode(b"user:" + SECRET.encode()).decode(),
        "hex": SECRET.encode().hex(),
    }
    return "x" * before + forms[form] + "y"


@server.tool(structured_output=False)
def repeat(text: str) -> str:
    """Say it again."""
    return text


server.run()
'''
LEAKY = {"leaky": {"command": "python", "args": ["leaky.py"], "env": {"REGION": "${SOME_REGION}"}}}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETS_OWN_API_KEY", FLEETS)
    monkeypatch.setenv("SOME_REGION", HANDED)


def project_of(root: Path, config: dict[str, Any], agents: dict[str, dict[str, Any]], **more: Any) -> Path:
    modules = {name: agent_module(name, ("leaky",), **more) for name in agents}
    config = {"llm_retries": 0, "mcp": {"servers": LEAKY}, **config}
    write_project(root, modules, keys=agents, config=config, files={"leaky.py": SERVER})
    redact_project(load_project(root))
    return root


async def said_of(fleet: Fleet, agent: str) -> tuple[str, list[StepDetail]]:
    """Ask an agent; all that the fleet recorded of the run."""
    before = fleet.hub.seq
    async with client(fleet, agent, bearer=BEARER) as connected:
        await connected.call_tool("send_message", {"message": "go on"})  # it may fail
    events = fleet.hub.since(before, 20_000).events
    run = next(each.run_id for each in events if isinstance(each, RunStarted) and each.agent == agent)
    port = LocalPort(fleet)
    details = [await port.step(run, each.number) for each in await port.steps(run)]
    told = [repr(each) for each in events if getattr(each, "run_id", "") == run]
    return "\n".join([*map(repr, details), *map(repr, fleet.exchanges(run)), *told]), details


@pytest.mark.slow
async def test_an_agent_in_a_process_of_its_own_leaks_no_secret_that_only_the_fleet_knows(
    tmp_path: Path,
) -> None:
    call = Reply(calls=[("leaky__repeat", {"text": f"it is {FLEETS}"})])
    async with provider(in_turn(call, Reply(f"it was {FLEETS}"))) as models:
        agents = {"inside": {}, "apart": {"isolation": "process"}}
        async with running(project_of(tmp_path, models.config("generic.qwen3"), agents)) as fleet:
            for agent in agents:
                said, details = await said_of(fleet, agent)
                assert [each.step.kind for each in details] == ["model", "tool", "model"]
                assert fleet.exchanges(details[0].step.run_id)
                assert "it is [redacted]" in said
                assert "it was [redacted]" in said
                assert FLEETS not in said


async def test_the_query_of_a_models_address_is_masked(tmp_path: Path) -> None:
    async with provider() as models:
        config = models.config("generic.qwen3")
        config["generic"]["base_url"] += f"?api_key={IN_QUERY}&key=k-1f20b7&version=3"
        async with running(project_of(tmp_path, config, {"one": {}})) as fleet:
            said, details = await said_of(fleet, "one")
    assert "?api_key=[redacted]&key=[redacted]&version=3" in details[0].step.url
    assert IN_QUERY not in said
    assert "k-1f20b7" not in said


def chat_stream(pieces: list[str]) -> Iterator[dict[str, Any]]:
    for piece in pieces:
        yield {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": piece}}]}


def responses_stream(pieces: list[str]) -> Iterator[dict[str, Any]]:
    response: dict[str, Any] = {
        "id": "r1", "object": "response", "created_at": 1, "model": "m", "status": "in_progress",
        "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    item = {"id": "m1", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    where = {"item_id": "m1", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    yield {"type": "response.created", "response": response}
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    yield {"type": "response.content_part.added", **where, "part": part}
    for piece in pieces:
        yield {"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []}


async def broken_off(events: Iterator[dict[str, Any]]) -> AsyncIterator[str]:
    for number, event in enumerate(events):
        kind = f"event: {event['type']}\n" if "type" in event else ""
        yield f"{kind}data: {json.dumps({'sequence_number': number, **event})}\n\n"
    raise ConnectionResetError("the model broke off")


@pytest.mark.parametrize(
    ("model", "stream"), [("responses.gpt-5-mini", responses_stream), ("generic.qwen3", chat_stream)]
)
@pytest.mark.parametrize("left_out", [0, 5])
async def test_a_secret_in_pieces_of_a_broken_off_answer_is_masked(
    tmp_path: Path, model: str, stream: Callable[[list[str]], Iterator[dict[str, Any]]], left_out: int
) -> None:
    text = f"it is {BEARER} and {FLEETS}"
    text = text[: len(text) - left_out]
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]

    async def answer(request: Request) -> Response:
        return StreamingResponse(broken_off(stream(pieces)), media_type="text/event-stream")

    listener = Listener(
        Starlette(routes=[Route("/{path:path}", answer, methods=["POST"])]), bind("127.0.0.1", 0, "model")
    )
    await listener.start()
    try:
        provider = model.partition(".")[0]
        config = {
            "default_model": model,
            provider: {"api_key": "none", "base_url": f"http://127.0.0.1:{listener.port}/v1"},
        }
        async with running(project_of(tmp_path, config, {"one": {}})) as fleet:
            said, _ = await said_of(fleet, "one")
    finally:
        await listener.stop()
    assert "it is [redacted] and [redacted]" in said
    assert FLEETS[:8] not in said
    assert BEARER[:8] not in said


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_what_an_entry_hands_to_a_child_is_masked_in_each_form_and_at_a_cut(
    tmp_path: Path, isolation: str
) -> None:
    calls: list[dict[str, Any]] = [{"form": form} for form in ("raw", "json", "base64", "hex")]
    calls.append({"form": "raw", "before": MAX_TEXT - 12})
    async with provider(
        in_turn(*(Reply(calls=[("leaky__say", each)]) for each in calls), Reply("ok"))
    ) as models:
        root = project_of(tmp_path, models.config("generic.qwen3"), {"one": {"isolation": isolation}})
        async with running(root) as fleet:
            said, details = await said_of(fleet, "one")
    assert len([each for each in details if each.step.kind == "tool"]) == len(calls)
    assert HANDED[:6] not in said
    assert "dover" not in said
    assert HANDED.encode().hex()[:12] not in said
    assert base64.b64encode(b"user:" + HANDED.encode()).decode()[8:20] not in said
    assert said.count("[redacted]") >= len(calls)
