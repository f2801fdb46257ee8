"""Tasks over the REST API: one's own, followed to their end, cancelled."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
from support.executors import Gate
from support.rest import Api, api

from pallas.access.identity import unverified_principal
from pallas.model import Principal, TaskRecord
from pallas.runs.run import Listener
from pallas.tasks import TaskOutcome


async def begun(made: Api, who: Principal, run: Callable[[Listener], Awaitable[TaskOutcome]]) -> TaskRecord:
    return await made.tasks.begin("echo", who, run, preview="do it")


def chunks(answer: httpx2.Response) -> list[dict[str, Any]]:
    lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line)["task"] for line in lines[:-1]]


async def test_a_task_is_listed_followed_and_cancelled_by_its_owner_alone(tmp_path: Path) -> None:
    gate = Gate()

    async def run(hear: Listener) -> TaskOutcome:
        await gate.answer(None, None)  # type: ignore[arg-type]
        return TaskOutcome({})

    async with api(tmp_path) as made, made.client("ada") as ada, made.client("bob") as bob:
        task = await begun(made, unverified_principal("ada"), run)
        await gate.reached.wait()
        listed = (await ada.get("/tasks", params={"status": "working"})).json()
        assert [(each["id"], each["preview"], each["text"]) for each in listed["items"]] == [
            (task.id, "do it", None)
        ]
        assert (await ada.get(f"/tasks/{task.id}")).json()["expiresAt"] is None
        assert (await bob.get("/tasks")).json()["items"] == []
        unknown = await bob.get("/tasks/nothing")
        for refused in (
            await bob.get(f"/tasks/{task.id}"),
            await bob.delete(f"/tasks/{task.id}"),
            await bob.get(f"/tasks/{task.id}/events"),
        ):
            assert (refused.status_code, refused.json()) == (404, unknown.json())
        cancelled = await ada.delete(f"/tasks/{task.id}")
        assert cancelled.status_code == 202
        told = chunks(await ada.get(f"/tasks/{task.id}/events"))
        assert told[-1]["status"] == "cancelled"
        assert told[-1]["expiresAt"] is not None
        assert gate.cancelled
        again = await ada.delete(f"/tasks/{task.id}")
        assert (again.status_code, again.json()["status"]) == (202, "cancelled")


async def test_where_nothing_lasts_there_are_no_tasks_and_the_api_says_why(tmp_path: Path) -> None:
    async with api(tmp_path, tasks=False) as made, made.client() as client:
        for path in ("/tasks", "/tasks/x", "/tasks/x/events"):
            refused = await client.get(path)
            assert refused.status_code >= 400
            assert "database_url" in refused.json()["error"]
