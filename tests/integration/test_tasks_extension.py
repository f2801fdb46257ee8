"""``send_message`` as a task, for clients of either era, over real ports and both databases."""

import asyncio
import json
from base64 import b64encode
from typing import Any

import pytest
from mcp import Client
from support.executors import Gate, echo
from support.tasks import ERA, EXTENSION, TaskClient, working

from pallas.asking import ask
from pallas.config.kinds import TasksConfig
from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.ledger import Ledger, open_ledger
from pallas.model import Fault, FaultType, Principal, StepStarted, TaskChanged
from pallas.runs.run import Listener
from pallas.tasks import TaskOutcome


async def test_a_client_that_declares_the_extension_gets_a_task_and_then_the_answer(ledger: Ledger) -> None:
    gate = Gate()
    async with working(ledger, gate.answer) as fleet:
        client = TaskClient(fleet.url)
        made = await client.call(message="count", conversation_id="new")
        assert made["resultType"] == "task"
        assert made["status"] == "working"
        assert made["ttlMs"] is None
        assert made["pollIntervalMs"] > 0
        assert len(made["taskId"]) == 32
        assert (await client.get(made["taskId"]))["status"] == "working"
        await gate.reached.wait()
        kept = await ledger.tasks.get(made["taskId"])
        assert kept is not None
        assert (kept.status, kept.agent, kept.preview) == ("working", "echo", "count")
        gate.open.set()
        done = await client.until(made["taskId"])
        assert (done["resultType"], done["status"]) == ("complete", "completed")
        assert done["result"]["content"] == [{"type": "text", "text": "0:count"}]
        assert not done["result"]["isError"]
        assert done["ttlMs"] >= TasksConfig().ttl * 1000
        # As the tool itself answers, with the run and the thread that it was said in.
        kept = await ledger.tasks.get(made["taskId"])
        assert kept is not None
        assert done["result"]["_meta"]["local.pallas/runId"] == kept.run_id
        assert done["result"]["_meta"]["local.pallas/threadId"] == kept.thread != ""
        told = [each for each in fleet.hub.since(0).events if isinstance(each, TaskChanged)]
        assert [(each.task, each.status) for each in told] == [
            (made["taskId"][:8], "working"),
            (made["taskId"][:8], "completed"),
        ]


@pytest.mark.parametrize("era", [ERA, "legacy"])
async def test_clients_that_do_not_declare_it_are_answered_as_ever(tmp_path: Any, era: str) -> None:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    async with working(ledger) as fleet:
        async with Client(fleet.url, mode=era) as client:
            result = await client.call_tool("send_message", {"message": "hi"})
            assert result.content[0].text == "0:hi"  # type: ignore[union-attr]
        assert (await ledger.tasks.list()).items == ()
        plain = TaskClient(fleet.url, declares=False)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            refused = await plain.ask(method, "x", taskId="x")
            assert refused["error"]["code"] == -32021
            assert EXTENSION in refused["error"]["data"]["requiredCapabilities"]["extensions"]
        found = await TaskClient(fleet.url, declares=False).ask("server/discover")
        assert EXTENSION in found["result"]["capabilities"]["extensions"]
    await ledger.close()


async def test_the_agents_own_name_and_wrong_arguments_are_as_without_tasks(tmp_path: Any) -> None:
    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    async with working(ledger) as fleet:
        client = TaskClient(fleet.url)
        made = await client.call("echo", message="hi")
        assert (await client.until(made["taskId"]))["result"]["content"][0]["text"] == "0:hi"
        wrong = await client.call(text="hi")
        assert wrong["isError"]
        assert "unknown argument text" in wrong["content"][0]["text"]
        health = await client.call("get_health")
        assert health["resultType"] == "complete"
    await ledger.close()


async def test_what_fails_is_the_result_that_the_tool_would_have_given(tmp_path: Any) -> None:
    async def fail(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        raise Fault(FaultType.UPSTREAM, "the provider is away")

    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    async with working(ledger, fail) as fleet:
        client = TaskClient(fleet.url)
        done = await client.until((await client.call(message="hi"))["taskId"])
        assert done["status"] == "completed"
        assert done["result"]["isError"] is True
        body = json.loads(done["result"]["content"][0]["text"])
        assert (body["error"], body["data"]["type"]) == ("the provider is away", "UPSTREAM")
        kept = await ledger.tasks.get(done["taskId"])
        assert kept is not None
        assert (kept.status, (kept.fault or {})["error"]) == ("failed", "the provider is away")
    await ledger.close()


async def test_work_that_breaks_is_a_task_that_failed_without_a_result(ledger: Ledger) -> None:
    async def broken(hear: Listener) -> TaskOutcome:
        raise RuntimeError("no fault of anybody's")

    async with working(ledger) as fleet:
        made = await fleet.tasks.begin("echo", Principal(), broken)
        done = await TaskClient(fleet.url).until(made.id)
        assert done["status"] == "failed"
        assert "result" not in done
        assert done["error"]["code"] == -32603
        assert done["error"]["message"] == "the task failed; the log has the details"


async def test_a_request_whose_header_names_another_task_or_none_is_refused(tmp_path: Any) -> None:
    gate = Gate()
    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    async with working(ledger, gate.answer) as fleet:
        client = TaskClient(fleet.url)
        made = (await client.call(message="hi"))["taskId"]
        await gate.reached.wait()
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            for named in ("f" * 32, ""):
                refused = await client.ask(method, named, taskId=made, inputResponses={})
                assert refused["error"]["code"] == -32020
                assert "mcp-name header does not match" in refused["error"]["message"]
        encoded = f"=?base64?{b64encode(made.encode()).decode()}?="
        found = await client.ask("tasks/get", encoded, taskId=made)
        assert found["result"]["status"] == "working"
        assert not gate.cancelled
        gate.open.set()
        await client.until(made)
    await ledger.close()


async def test_of_two_questions_the_one_that_was_answered_is_asked_no_longer(ledger: Ledger) -> None:
    async def curious(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        answers = await asyncio.gather(ask("Who?"), ask("Where?"))
        return TurnResult((" ".join(each.text for each in answers),), ())

    async with working(ledger, curious) as fleet:
        client = TaskClient(fleet.url, answers=True)
        made = (await client.call(message="hi"))["taskId"]
        waits = await client.told(made, lambda task: len(task.get("inputRequests", ())) == 2)
        asked = waits["inputRequests"]
        first, second = sorted(asked, key=lambda each: "Where" in asked[each]["params"]["message"])
        # Also before the work has had the time to go on.
        given = {"action": "accept", "content": {"answer": "Ada"}}
        assert await fleet.tasks.answer(made, Principal(), {first: given}) == {first}
        now = await fleet.tasks.find(made, Principal())
        assert (now.status, list(now.request or ())) == ("input_required", [second])
        assert list((await client.get(made))["inputRequests"]) == [second]
        await client.answer(made, {second: {"action": "accept", "content": {"answer": "London"}}})
        assert (await client.until(made))["result"]["content"][0]["text"] == "Ada London"


async def test_cancelling_a_task_cancels_its_run_and_what_it_wrote_stays(ledger: Ledger) -> None:
    gate = Gate()
    async with working(ledger, gate.answer) as fleet:
        client = TaskClient(fleet.url)
        made = (await client.call(message="hi", conversation_id="new"))["taskId"]
        await gate.reached.wait()
        assert (await client.cancel(made))["result"] == {"resultType": "complete"} | (
            (await client.cancel(made))["result"]
        )
        done = await client.until(made)
        assert done["status"] == "cancelled"
        assert "result" not in done
        assert gate.cancelled
        assert fleet.tasks.under_way == 0
        again = await client.cancel(made)
        assert again["result"]["resultType"] == "complete"
        assert (await client.get(made))["status"] == "cancelled"


async def test_a_task_is_its_owners_and_its_agents(ledger: Ledger) -> None:
    gate = Gate()
    async with working(ledger, gate.answer) as fleet:
        ada, bob = TaskClient(fleet.url, bearer="ada-token"), TaskClient(fleet.url, bearer="bob-token")
        made = (await ada.call(message="my secret"))["taskId"]
        await gate.reached.wait()
        nothing = await bob.ask("tasks/get", "f" * 32, taskId="f" * 32)
        for stranger in (bob, TaskClient(fleet.url)):
            for method in ("tasks/get", "tasks/update", "tasks/cancel"):
                refused = await stranger.ask(method, made, taskId=made, inputResponses={})
                assert refused["error"]["code"] == -32602
                assert refused["error"]["message"] == nothing["error"]["message"]
        elsewhere = await TaskClient(fleet.other, bearer="ada-token").ask("tasks/get", made, taskId=made)
        assert elsewhere["error"]["code"] == -32602
        assert not gate.cancelled
        gate.open.set()
        assert (await ada.until(made))["status"] == "completed"


async def test_who_may_no_longer_call_the_tool_may_no_longer_ask_for_its_tasks(tmp_path: Any) -> None:
    revoked: list[str] = []

    async def authorize(tool: str, who: Principal) -> None:
        assert tool == "send_message"
        if who.id in revoked:
            raise Fault(FaultType.AUTH, "not any more")

    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    async with working(ledger, authorize=authorize) as fleet:
        ada = TaskClient(fleet.url, bearer="ada-token")
        made = (await ada.call(message="hi"))["taskId"]
        await ada.until(made)
        kept = await ledger.tasks.get(made)
        assert kept is not None
        revoked.append(kept.owner)
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            refused = await ada.ask(method, made, taskId=made)
            assert (refused["error"]["code"], refused["error"]["message"]) == (-32003, "not any more")
        assert (await ada.call(message="hi"))["isError"]
    await ledger.close()


async def test_more_tasks_than_may_be_under_way_are_refused(tmp_path: Any) -> None:
    gate = Gate()
    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    async with working(ledger, gate.answer, TasksConfig(max=2)) as fleet:
        client = TaskClient(fleet.url)
        made = [(await client.call(message="hi"))["taskId"] for _ in range(2)]
        refused = await client.call(message="hi")
        body = json.loads(refused["content"][0]["text"])
        assert refused["isError"]
        assert body["error"].startswith("Server overloaded: 2 tasks")
        assert body["data"]["retryable"] is True
        gate.open.set()
        for each in made:
            await client.until(each)
        assert (await client.call(message="hi"))["resultType"] == "task"
    await ledger.close()


async def test_progress_is_told_and_a_task_outlives_its_callers_connection(tmp_path: Any) -> None:
    go = asyncio.Event()

    async def work(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        emit(StepStarted(run_id=turn.run_id, agent="echo", actor="echo", step=3, kind="llm"))
        await go.wait()
        return await echo(turn, emit)

    ledger = await open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite3")
    async with working(ledger, work) as fleet:
        # Each request has a connection of its own, which is over when it was answered.
        client = TaskClient(fleet.url)
        made = (await client.call(message="hi"))["taskId"]
        await client.told(made, lambda task: task.get("statusMessage") == "echo step 3 (llm)")
        assert fleet.tasks.under_way == 1
        go.set()
        assert (await TaskClient(fleet.url).until(made))["result"]["content"][0]["text"] == "0:hi"
    await ledger.close()


async def test_an_agent_asks_on_the_way_and_goes_on_with_the_answer(ledger: Ledger) -> None:
    async def curious(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        name = await ask("What is your name?")
        more = await ask("Sure?", {"type": "object", "properties": {"sure": {"type": "boolean"}}})
        return TurnResult((f"{name.text} {more.action} {dict(more.content)}",), ())

    async with working(ledger, curious) as fleet:
        client = TaskClient(fleet.url, answers=True)
        made = (await client.call(message="hi"))["taskId"]
        waits = await client.until(made, "input_required")
        ((key, question),) = waits["inputRequests"].items()
        assert question["method"] == "elicitation/create"
        assert question["params"]["message"] == "What is your name?"
        assert question["params"]["requestedSchema"]["required"] == ["answer"]
        answered = {"action": "accept", "content": {"answer": "Ada"}}
        said = await client.answer(made, {"nonsense": answered, key: answered})
        assert said["result"]["resultType"] == "complete"
        waits = await client.told(made, lambda task: key not in task.get("inputRequests", {key: 1}))
        ((second, _),) = waits["inputRequests"].items()
        assert second != key
        await client.answer(made, {second: {"action": "decline"}})
        done = await client.until(made)
        assert done["result"]["content"][0]["text"] == "Ada decline {}"
        # The task of a client that cannot be asked says what is waited for: others may answer.
        shy = (await TaskClient(fleet.url).call(message="hi"))["taskId"]
        waits = await client.told(shy, lambda task: "waits for an answer" in task.get("statusMessage", ""))
        assert (waits["status"], waits.get("inputRequests")) == ("working", None)
        await client.cancel(shy)
        await client.until(shy)


async def test_what_was_under_way_when_the_fleet_stopped_has_failed_and_what_was_over_still_answers(
    database_url: str,
) -> None:
    gate = Gate()
    first = await open_ledger(database_url)
    async with working(first) as fleet:
        client = TaskClient(fleet.url)
        done = (await client.call(message="hi"))["taskId"]
        await client.until(done)
    async with working(first, gate.answer) as fleet:
        lost = (await TaskClient(fleet.url).call(message="hi", conversation_id="new"))["taskId"]
        await gate.reached.wait()
        thread = next(iter((await first.threads.list()).items)).id
    await first.close()
    second = await open_ledger(database_url)
    async with working(second) as fleet:
        client = TaskClient(fleet.url)
        assert (await client.get(done))["result"]["content"][0]["text"] == "0:hi"
        found = await client.get(lost)
        kept = await second.tasks.get(lost)
        assert kept is not None
        assert kept.thread == thread
        assert (kept.status, found["status"]) == ("failed", "failed")
        assert "the fleet stopped in the middle" in found["error"]["message"]
        assert found["error"]["data"]["data"]["stopped"] is True
    await second.close()
