"""Tasks of a fleet that is served, killed and started again: agents, bridge, REST, `pallas tasks`."""

import asyncio
import json
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from mcp import Client
from mcp.client.extension import ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import CallToolResult
from support.live import ECHO, agent_module, running, write_project
from support.served import Served, served
from support.tasks import ERA, EXTENSION, TaskClient
from support.waiting import until

from pallas.cli.app import run
from pallas.model import Principal
from pallas.model.questions import QuestionAnswer
from pallas.surfaces.tasks_extension import _Task

SLOW = '***CALL_TOOL echo__slow {"text": "hi"}'


@dataclass
class Typed:
    """What a command ended with and wrote."""

    status: int
    out: str
    err: str


class Shell:
    """Types commands at a fleet."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._root = root
        self._capsys = capsys

    async def __call__(self, *words: str) -> Typed:
        self._capsys.readouterr()
        status = await asyncio.to_thread(run, ["--project", str(self._root), "tasks", *words])
        out, err = self._capsys.readouterr()
        return Typed(status, out, err)


def project(tmp_path: Path, **tasks: Any) -> Path:
    return write_project(
        tmp_path / "project",
        {"harper": agent_module("harper", ("echo",))},
        config=ECHO,
        top={"tasks": tasks, "bind": "127.0.0.1", "database_url": f"sqlite:///{tmp_path}/ledger.sqlite3"},
    )


async def used_by_a_client_of(url: str, era: str) -> None:
    """Handles without the extension: a tool of the bridge gives one, two others fetch what came of it."""
    async with (
        create_mcp_http_client() as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):

        async def asked(tool: str, **arguments: Any) -> dict[str, Any]:
            result = await client.call_tool(tool, arguments)
            body: dict[str, Any] = json.loads(result.content[0].text)  # type: ignore[union-attr]
            return {**body, "isError": result.is_error}

        assert {"tasks_status", "tasks_result"} <= {each.name for each in (await client.list_tools()).tools}
        made = await asked("tasks_delegate", prompt="hello", wait=False)
        assert (made["success"], made["agentId"]) == (True, "harper")
        assert "text" not in made
        done = await asked("tasks_result", taskId=made["taskId"], timeout=60_000)
        assert (done["success"], done["text"], done["agentId"]) == (True, "hello", "harper")
        told = await asked("tasks_status", taskId=made["taskId"])
        assert (told["status"], told["isError"]) == ("completed", False)
        assert told["expiresAt"] > told["createdAt"]
        waited = await asked("tasks_delegate", prompt="hello", wait=True)
        assert waited["text"] == "hello"
        slow = await asked("tasks_delegate", prompt=SLOW, wait=False)
        early = await asked("tasks_result", taskId=slow["taskId"])
        assert early["isError"]
        assert early["data"]["retryable"] is True
        unknown = await asked("tasks_status", taskId="nothing")
        assert unknown["isError"]
        assert unknown["error"].startswith("task not found")
    # Who asked is gone, and the work goes on.
    assert (await TaskClient(url).get(slow["taskId"]))["status"] == "working"
    await TaskClient(url).cancel(slow["taskId"])
    assert (await TaskClient(url).until(slow["taskId"]))["status"] == "cancelled"


class Polls(ClientExtension):
    """A client of the SDK that finishes a task by asking for it."""

    identifier = EXTENSION

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=_Task, resolve=self._resolve)]

    def __init__(self, url: str) -> None:
        self._url = url
        self.tasks: list[str] = []

    async def _resolve(self, task: _Task, _: Any) -> CallToolResult:
        self.tasks.append(task.task_id)
        done = await TaskClient(self._url).until(task.task_id)
        return CallToolResult.model_validate(done["result"])


@pytest.mark.slow
async def test_tasks_from_their_beginning_over_a_kill_to_their_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, tools=True)
    shell = Shell(root, capsys)
    with served(root) as fleet:
        await fleet.says("ready")
        agent, bridge = fleet.url("harper"), f"{fleet.registry}/mcp"
        client = TaskClient(agent)
        quick = (await client.call(message="hello", conversation_id="new"))["taskId"]
        assert (await client.until(quick))["result"]["content"][0]["text"] == "hello"
        polls = Polls(agent)
        async with (
            create_mcp_http_client() as http,
            Client(streamable_http_client(agent, http_client=http), mode=ERA, extensions=[polls]) as finished,
        ):
            answer = await finished.call_tool("send_message", {"message": "by the SDK"})
        assert answer.content[0].text == "by the SDK"  # type: ignore[union-attr]
        assert len(polls.tasks) == 1
        delegated = (await TaskClient(bridge).call("tasks_delegate", prompt="over the bridge"))["taskId"]
        done = await TaskClient(bridge).until(delegated)
        body = json.loads(done["result"]["content"][0]["text"])
        assert (body["success"], body["text"]) == (True, "over the bridge")
        for era in (ERA, "legacy"):
            await used_by_a_client_of(bridge, era)
        await typed_at_a_fleet_that_runs(fleet, shell, quick)

        lost = (await client.call(message=SLOW, conversation_id="new"))["taskId"]
        await client.told(lost, lambda task: "slow" in task.get("statusMessage", ""))
        below = fleet.children()
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        for pid in below:  # the downstream is at it for a minute
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()

    offline = await shell("show", quick)
    assert (offline.status, offline.out.splitlines()[-1]) == (0, "hello")
    with served(root) as fleet:
        await fleet.says("ready")
        client = TaskClient(fleet.url("harper"))
        assert (await client.get(quick))["result"]["content"][0]["text"] == "hello"
        # It goes on at its last step: the model is told that the answer of its tool was lost.
        found = await client.until(lost)
        assert found["status"] == "completed"
        assert "outcome unknown" in found["result"]["content"][0]["text"]
        assert "outcome unknown" in (await shell("attach", lost)).out
        shown = json.loads((await shell("show", lost, "--json")).out)
        async with httpx2.AsyncClient(
            base_url=f"{fleet.registry}/api/v1", trust_env=False, timeout=60
        ) as api:
            rows = (await api.get(f"/threads/{shown['threadId']}/messages")).json()["items"]
        assert {row["status"] for row in rows} == {"complete"}


async def typed_at_a_fleet_that_runs(fleet: Served, shell: Shell, quick: str) -> None:
    client = TaskClient(fleet.url("harper"))
    slow = (await client.call(message=SLOW, conversation_id="new"))["taskId"]
    await client.told(slow, lambda task: "slow" in task.get("statusMessage", ""))

    listed = await shell("list", "--status", "working")
    assert listed.status == 0
    head, *rows = listed.out.splitlines()
    assert head.split() == ["ID", "AGENT", "STATUS", "STARTED", "CHANGED", "PROGRESS", "MESSAGE"]
    assert [row.split()[0] for row in rows] == [slow]
    assert "echo/slow: started" in rows[0]
    documents = json.loads((await shell("list", "-o", "json")).out)["items"]
    assert {"completed", "working", "cancelled"} == {each["status"] for each in documents}

    shown = await shell("show", slow[:8])
    assert f"Task:       {slow}" in shown.out
    assert "Status:     working" in shown.out
    cancelled = await shell("cancel", slow, "f" * 32)
    assert cancelled.status == 1
    assert cancelled.out == f"{slow} is cancelled\n"
    assert "task not found" in cancelled.err
    ended = await shell("attach", slow)
    assert (ended.status, ended.out) == (1, "")
    assert "cancelled" in ended.err
    again = await shell("cancel", slow)
    assert (again.status, again.out) == (0, f"{slow} is already cancelled\n")

    went = (await client.call(message=SLOW))["taskId"]
    attached = asyncio.create_task(shell("attach", went))
    await client.told(went, lambda task: "slow" in task.get("statusMessage", ""))
    await client.cancel(went)
    assert (await attached).status == 1

    answered = await shell("attach", quick)
    assert (answered.status, answered.out) == (0, "hello\n")
    assert json.loads((await shell("attach", quick, "--json")).out)["text"] == "hello"
    assert (await shell("list", "-o", "nonsense")).status == 2
    assert (await shell("show", "a" * 32)).status == 1


async def test_without_a_ledger_there_are_no_tasks_and_the_eight_stay_eight(tmp_path: Path) -> None:
    root = project(tmp_path)
    async with running(root) as fleet:
        assert fleet.surfaces.tasks is None
        client = TaskClient(fleet.agents[0].url)
        assert (await client.call(message="hello"))["resultType"] == "complete"
        capabilities = (await client.ask("server/discover"))["result"]["capabilities"]
        assert EXTENSION not in capabilities.get("extensions", {})
        refused = await client.ask("tasks/get", "x", taskId="x")
        assert refused["error"]["code"] == -32601
        bridge = TaskClient(fleet.registry_url.rsplit("/.well-known", 1)[0] + "/mcp", declares=False)
        tools = (await bridge.ask("tools/list"))["result"]["tools"]
        assert len(tools) == 8
        unknown = await bridge.call("tasks_delegate", prompt="hello", wait=False)
        assert unknown["isError"]
        assert "wait" in unknown["content"][0]["text"]


CURIOUS = """
from pallas.asking import ask, can_ask


class Curious:
    id = "curious"

    async def prompt(self, request):
        assert can_ask()
        answer = await ask("Which branch?", timeout=30)
        return f"released {answer.text or answer.action}"
"""


async def test_code_of_an_agent_asks_over_its_own_port_and_over_the_bridge(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "project",
        {"curious": None},
        keys={"curious": {"module": None, "kind": "handler", "handler": "handlers.curious:Curious"}},
        files={"handlers/__init__.py": "", "handlers/curious.py": CURIOUS},
    )
    async with running(root, database=f"sqlite:///{tmp_path}/ledger.sqlite3") as fleet:
        bridge = fleet.registry_url.rsplit("/.well-known", 1)[0] + "/mcp"
        calls: list[tuple[str, str, dict[str, Any]]] = [
            (fleet.agents[0].url, "send_message", {"message": "release"}),
            (bridge, "tasks_delegate", {"prompt": "release"}),
        ]
        for url, tool, arguments in calls:
            client = TaskClient(url, answers=True)
            made = (await client.call(tool, **arguments))["taskId"]
            waits = await client.until(made, "input_required")
            ((key, question),) = waits["inputRequests"].items()
            assert question["params"]["message"] == "Which branch?"
            await client.answer(made, {key: {"action": "accept", "content": {"answer": "main"}}})
            done = await client.until(made)
            assert "released main" in done["result"]["content"][0]["text"]
        plain = TaskClient(fleet.agents[0].url, declares=False)
        call = asyncio.create_task(plain.call(message="release"))
        questions = fleet.kernel.questions
        (asked,) = await until(lambda: questions.open_here)
        await questions.answer(asked.id, QuestionAnswer("decline"), Principal())
        assert (await call)["content"][0]["text"] == "released decline"
        # Nothing of it is left under way.
        assert fleet.surfaces.tasks is not None
        assert fleet.surfaces.tasks.under_way == 0
