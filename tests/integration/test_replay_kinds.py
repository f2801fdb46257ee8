"""Agents of every kind, servers of both protocol versions, and runs that failed are replayed."""

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse
from support.backends import servers
from support.live import ERAS, agent_module, running, write_project
from support.offline import offline_project
from support.providers import provider
from support.remotes import other
from support.replayed import assert_same, recorded, replayed
from support.typed import typed_project
from support.workers import SIMPLE

from pallas.executors.fastagent import seam
from pallas.model import Fault, Params, RunRequest
from pallas.recordings.recording_folder import read, write
from pallas.runs.run_recording import record_run

BEARER = "canary-bearer-5e1f0c2d9b7a"
PEERS = """
rules:
  - when: {last: user, text: ask both}
    call:
      - {tool: simple, arguments: {message: "hello"}}
      - {tool: far, arguments: {message: "hello"}}
  - when: {last: tool}
    say: "they say {{ result }}"
"""


async def test_a_worker_and_a_remote_agent_answer_from_the_recording(tmp_path: Path) -> None:
    program = tmp_path / "worker.py"
    shutil.copy(SIMPLE, program)
    async with other() as there:
        root = offline_project(
            tmp_path / "p",
            {"boss": agent_module("boss"), "front": None, "simple": None, "far": None},
            PEERS,
            keys={
                "boss": {"peers": ["simple", "far"]},
                "front": {"kind": "router", "module": None, "agents": ["boss"], "fallback": "boss"},
                "simple": {"module": None, "kind": "worker", "command": ["python", str(program)]},
                "far": {"module": None, "kind": "remote", "url": there.url},
            },
        )
        recording = await recorded(root, "front", "ask both")
    assert {run.agent: run.kind for run in recording.runs} == {
        "front": "router",
        "boss": "llm",
        "simple": "worker",
        "far": "remote",
    }
    program.unlink()
    outcome = await replayed(root, recording)
    assert_same(outcome)
    assert "hello?" in outcome.recording.first.answer


SERVED = """
rules:
  - when: {last: user}
    call:
      - {tool: web__ask, arguments: {question: "when"}}
      - {tool: shelf__find, arguments: {what: "lamps"}}
  - when: {last: tool}
    say: "found {{ result }}"
"""
SHELF = '''
from stdio_server import StdioServer

server = StdioServer("shelf", instructions="Find first.\\nThen look.")


@server.tool()
def find(what: str, id: int = 1) -> str:
    """Find a thing on the shelf."""
    return f"three {what}"


server.run()
'''
TOLD = """
from fast_agent import FastAgent

fast = FastAgent("plain")


@fast.agent(
    name="plain",
    instruction="You are plain. It is {{currentDate}}.\\n{{serverInstructions}}",
    servers=["web", "shelf"],
)
async def main() -> None: ...
"""


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_servers_over_http_and_stdio_of_either_protocol_version_answer_from_the_recording(
    tmp_path: Path, era: str
) -> None:
    mode = {"protocol_mode": "legacy" if era == "legacy" else "modern"}
    async with other() as there:
        web = {"url": there.url, "auth": {"oauth": False}, **mode}
        shelf = {"command": "python", "args": ["shelf.py"], **mode}
        root = offline_project(
            tmp_path / "p",
            {"plain": TOLD},
            SERVED,
            config={"mcp": {"servers": {"web": web, "shelf": shelf}}},
            files={"shelf.py": SHELF},
        )
        recording = await recorded(root, "plain", "look")
    assert "<instructions>\\nFind first.\\nThen look.\\n</instructions>" in recording.first.steps[0].request
    outcome = await replayed(root, recording)
    assert_same(outcome)
    assert outcome.recording.first.answer == 'found {"result":"when?"}\n\n{"result":"three lamps"}'


TALK = """
rules:
  - when: {last: user, text: look}
    call: [{tool: echo__echo, arguments: {text: "a lamp"}}]
  - when: {last: tool}
    say: "I see {{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}: {{ last }}"
"""


@pytest.mark.slow
async def test_what_was_said_before_in_the_conversation_is_sent_again(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"plain": agent_module("plain", ("echo",))}, TALK)
    async with running(root, database="memory") as fleet:
        for text in ("look", "hello", "look"):
            result = await fleet.kernel.run(RunRequest("plain", text, conversation="a talk"))
        assert fleet.ledger is not None
        recording = await record_run(fleet.kernel, fleet.ledger, fleet.project, result.run_id)
    write(recording, root / "recording")
    recording = read(root / "recording")
    assert [message.role for message in recording.history] == [
        "user", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert_same(await replayed(root, recording))


@pytest.mark.parametrize("conversation", [None, "a talk"])
async def test_parameters_of_the_caller_and_its_session_are_given_again(
    tmp_path: Path, conversation: str | None
) -> None:
    root = offline_project(tmp_path / "p", {"plain": agent_module("plain", ("echo",))}, TALK)
    given = {"temperature": 0.25, "systemAppend": "Be brief.", "tools_allowlist": ["echo__echo"]}
    params, defaults = Params(given), Params({"temperature": 0.5, "max_tokens": 100})
    recording = await recorded(
        root, "plain", "look", params=params, defaults=defaults, conversation=conversation
    )
    assert recording.first.params == {**given, "max_tokens": 100}
    asked = json.loads(recording.first.steps[0].request)
    assert (asked["temperature"], len(asked["tools"])) == (0.25, 1)
    assert_same(await replayed(root, recording))


async def test_a_token_in_the_parameters_is_masked(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"plain": agent_module("plain")}, TALK)
    params = Params({"systemAppend": f"Your key is {BEARER}."})
    recording = await recorded(root, "plain", "hello", params=params, bearer=BEARER)
    assert recording.first.params == {"systemAppend": "Your key is [redacted]."}
    assert BEARER not in repr(recording)
    assert_same(await replayed(root, recording))


async def test_messages_that_a_caller_gave_are_sent_again(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"plain": agent_module("plain", ("echo",))}, TALK)
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "look"},
    ]
    recording = await recorded(root, "plain", "", params=Params({"messages": messages}))
    outcome = await replayed(root, recording)
    assert_same(outcome)
    assert len(json.loads(outcome.recording.first.steps[0].request)["messages"]) == 4


DESK = """
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, Text
    from pallas.llm import complete

    @dataclass
    class Ask:
        text: str

    async def asker(payload, metadata):
        answer = await complete(model="m-1", messages=[{"role": "user", "content": payload.text}])
        return HandlerResponse.respond(Text(answer.content))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_complete_of_a_handler_is_answered_from_the_recording(tmp_path: Path, isolation: str) -> None:
    async with servers(["fine"]) as (server,):
        backend = {"provider": "openai", "id": "one", "base_url": server.base, "api_key": "none"}
        root = typed_project(
            tmp_path / "p",
            DESK,
            {"asker": {"payload": "Ask", "agent": True, "isolation": isolation}},
            top={"llm": {"retry_base_delay": 0, "backends": [{**backend, "supported_models": ["m-"]}]}},
            config={"default_model": "openai.m-1"},
        )
        recording = await recorded(root, "asker", "hello")
    assert [each.step.kind for each in recording.first.steps] == ["model"]
    outcome = await replayed(root, recording)
    assert_same(outcome)
    assert outcome.recording.first.answer == "fine"
    edited = DESK.replace("payload.text}", "payload.text.upper()}")
    (root / "desk.py").write_text(textwrap.dedent(edited), "utf-8")
    outcome = await replayed(root, recording)
    assert outcome.is_miss
    assert 'messages[0].content is "HELLO", in step 1 of asker it was "hello"' in outcome.fault


@pytest.mark.parametrize("status", [400, 503])
async def test_a_run_that_failed_fails_again_without_waiting(
    tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seam, "RETRY_SECONDS", 0.0)
    async with provider() as models:

        async def refuse(request: Any, kind: Any) -> Any:
            return JSONResponse({"error": {"message": "busy"}}, status)

        models._hear = refuse  # type: ignore[method-assign]
        root = write_project(
            tmp_path / "p",
            {"plain": agent_module("plain", model="generic.qwen3")},
            config=models.config("generic.qwen3"),
        )
        recording = await recorded(root, "plain", "hello", fails=True)
    assert f"HTTP {status}" in recording.first.fault
    monkeypatch.setattr(seam, "RETRY_SECONDS", 1_000.0)
    outcome = await replayed(root, recording)
    assert_same(outcome)
    assert outcome.fault == recording.first.fault


async def test_an_agent_that_is_not_in_the_project_is_a_fault(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"plain": agent_module("plain")}, TALK)
    recording = await recorded(root, "plain", "hello")
    text = (root / "agents.yaml").read_text("utf-8")
    (root / "agents.yaml").write_text(text.replace("  plain:\n", "  simple:\n"), "utf-8")
    with pytest.raises(Fault, match="plain, which was recorded, is not in"):
        await replayed(root, recording)
