"""A run that another fleet takes over begins with what it used before, with the runs below it."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS
from support.served import Served, served
from support.surfaces import rest
from support.survivors import effects, project
from support.waiting import until

from pallas.ledger import open_ledger


async def asked(fleet: Served) -> None:
    """Ask the lead, which has the clerk work, until its fleet is gone."""
    with suppress(Exception):  # the connection breaks
        async with fleet.client("lead", ERAS[0]) as lead:
            message = {"message": "have it done", "conversation_id": "a thread of mine"}
            await lead.call_tool("send_message", message)


async def stored_steps(url: str) -> int:
    """How many questions to models the ledger knows, once there are some of both runs."""
    ledger = await open_ledger(url)

    async def found() -> int:
        runs = (await ledger.runs.list()).items
        steps = [await ledger.steps.list(run.id) for run in runs]
        models = [[step for step in each if step.kind == "model" and step.state == "done"] for each in steps]
        return sum(map(len, models)) if len(models) == 2 and all(models) else 0

    try:
        return await until(found, timeout=60)
    finally:
        await ledger.close()


@pytest.mark.slow
async def test_a_run_that_goes_on_counts_what_it_and_its_runs_used_before(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    limits = {"per_run": {"steps": 50, "tokens": "1M"}, "per_caller": {"tokens_per_day": "1M"}}
    rules = {"unfinished_calls": {"shelf__*": "repeat"}}
    root = project(tmp_path / "p", url, lead={}, top={"limits": limits}, **rules)
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet))
        await until(lambda: effects(root) == ["note a", "wait b"], timeout=60)
        before = await stored_steps(url)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    with served(root) as fleet:
        await fleet.says("] running")
        async with rest(fleet) as client:

            async def both_go_on() -> bool:
                runs = (await client.get("/runs")).json()["items"]
                found = [(await client.get(f"/runs/{run['id']}")).json() for run in runs]
                return len(found) == 2 and all(run["attempt"] == 2 and run["limits"] for run in found)

            await until(both_go_on, timeout=60)
            (root / "door").touch()

            async def both_over() -> dict[str, Any]:
                runs = (await client.get("/runs")).json()["items"]
                over = len(runs) == 2 and all(run["status"] != "running" for run in runs)
                return {run["agent"]: run for run in runs} if over else {}

            runs = await until(both_over, timeout=60)
            assert {agent: (run["status"], run["attempt"]) for agent, run in runs.items()} == {
                "lead": ("ok", 2),
                "clerk": ("ok", 2),
            }
            lead = (await client.get(f"/runs/{runs['lead']['id']}")).json()
            used = {each["limit"]: each["used"] for each in lead["limits"]}
            assert used["per_run.steps"] > before

            async def usages() -> list[dict[str, Any]]:
                found = [
                    step["usage"]
                    for run in runs.values()
                    for step in (await client.get(f"/runs/{run['id']}/steps")).json()["items"]
                    if step["kind"] == "model"
                ]
                return found if len(found) == used["per_run.steps"] else []

            counted = await until(usages, timeout=60)  # once all of them are stored
            tokens = sum((each["inputTokens"] or 0) + (each["outputTokens"] or 0) for each in counted)
            assert used["per_run.tokens"] == tokens
            assert used["per_caller.tokens_per_day"] == tokens  # it was in the ledger
