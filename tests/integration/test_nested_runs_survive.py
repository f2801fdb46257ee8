"""An agent that asked another one: both go on after a kill, and the one that asked gets the answer."""

import asyncio
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from support.databases import Server, fresh_database
from support.live import ERAS
from support.served import Served, served, text_of
from support.surfaces import rest
from support.survivors import effects, project, rows
from support.waiting import until

from pallas.ledger import open_ledger, tables
from pallas.model import Cost, RunRecord

TOLD = "I do not know whether it was done"


async def asked(fleet: Served, era: str = ERAS[0], text: str = "have it done") -> None:
    """Ask the lead, which has the clerk work, until its fleet is gone."""
    with suppress(Exception):  # the connection breaks
        async with fleet.client("lead", era) as lead:
            message = {"message": text, "conversation_id": "a thread of mine"}
            await lead.call_tool("send_message", message)


async def ended(url: str) -> tuple[dict[str, RunRecord], list[str]]:
    """The runs by agent once all are over, and the rows of the lead's thread."""
    ledger = await open_ledger(url)

    async def both_over() -> dict[str, RunRecord]:
        runs = (await ledger.runs.list()).items
        over = len(runs) > 1 and all(run.status != "running" for run in runs)
        assert not over or len(runs) == 2
        return {run.agent: run for run in runs} if over else {}

    try:
        by_agent = await until(both_over, timeout=60)
        return by_agent, await rows(ledger, by_agent["lead"].thread)
    finally:
        await ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
@pytest.mark.parametrize(
    ("rules", "waits", "answer"),
    [({}, 1, TOLD), ({"shelf__*": "repeat"}, 2, 'done: {"result":"waited b"}')],
    ids=["told", "repeated"],
)
async def test_a_killed_fleet_that_is_started_again_goes_on_with_both(
    tmp_path: Path, rules: dict[str, str], waits: int, answer: str, isolation: str
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    keys: dict[str, Any] = {"isolation": isolation, **({"unfinished_calls": rules} if rules else {})}
    root = project(tmp_path / "p", url, lead={"isolation": isolation}, **keys)
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet, ERAS[waits - 1]))
        await until(lambda: effects(root) == ["note a", "wait b"], timeout=60)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    (root / "door").touch()
    with served(root):
        runs, said = await ended(url)
    assert {agent: (run.status, run.attempt) for agent, run in runs.items()} == {
        "lead": ("ok", 2),
        "clerk": ("ok", 2),
    }
    assert effects(root) == ["note a", *["wait b"] * waits]
    assert said == [
        "user complete: have it done",
        "assistant complete: ",
        f"tool complete: {answer}",
        f"assistant complete: done: {answer}",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_fleet_that_is_asked_to_stop_hands_both_over_after_the_step_of_the_inner_one(
    tmp_path: Path, isolation: str
) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    lead = {"isolation": isolation}
    root = project(tmp_path / "p", url, lead=lead, top={"drain": "hand_over"}, isolation=isolation)
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet))
        await until(lambda: effects(root) == ["note a", "wait b"], timeout=60)
        fleet.send(signal.SIGTERM)
        await fleet.says("2 runs in flight")
        (root / "door").touch()
        assert await fleet.ended() == 0
        await asking
    with served(root):
        runs, said = await ended(url)
    assert {agent: (run.status, run.attempt) for agent, run in runs.items()} == {
        "lead": ("ok", 2),
        "clerk": ("ok", 2),
    }
    assert effects(root) == ["note a", "wait b"]
    assert said[2:] == [
        'tool complete: done: {"result":"waited b"}',
        'assistant complete: done: done: {"result":"waited b"}',
    ]


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_who_cancels_the_outer_run_cancels_the_one_that_it_joined(tmp_path: Path, era: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "p", url, lead={}, unfinished_calls={"*": "repeat"})
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet, era))
        await until(lambda: effects(root) == ["note a", "wait b"], timeout=60)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    with served(root) as fleet:
        await until(lambda: effects(root).count("wait b") == 2, timeout=60)
        async with rest(fleet) as api:
            (run,) = (each for each in (await api.get("/runs")).json()["items"] if each["agent"] == "lead")
            assert (await api.delete(f"/runs/{run['id']}")).status_code == 202
            # The threads of nested runs are nobody's conversations.
            threads = (await api.get("/threads")).json()["items"]
            assert [each["agent"] for each in threads] == ["lead"]
        runs, _ = await ended(url)
    assert {agent: run.status for agent, run in runs.items()} == {"lead": "cancelled", "clerk": "cancelled"}


@pytest.mark.slow
async def test_a_run_whose_outer_one_is_over_does_not_go_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "p", url, lead={})
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet))
        await until(lambda: effects(root) == ["note a", "wait b"], timeout=60)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    ledger = await open_ledger(url)
    try:
        (lead,) = (each for each in (await ledger.runs.list()).items if each.agent == "lead")
        over = update(tables.runs).where(tables.runs.c.id == lead.id).values(status="error")
        await ledger.database.write(lambda connection: connection.execute(over))
    finally:
        await ledger.close()
    with served(root):
        runs, _ = await ended(url)
    assert (runs["clerk"].status, runs["clerk"].fault) == ("error", "the run that asked for it is over")
    assert effects(root) == ["note a", "wait b"]


@pytest.mark.slow
@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGKILL], ids=["asked to stop", "killed"])
async def test_another_replica_goes_on_with_both(
    tmp_path: Path, postgres: Server, ends: signal.Signals
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    async with fresh_database(postgres) as url:
        with ExitStack() as stack:
            fleets = []
            for name in ("one", "two"):
                top = {"drain": "hand_over", "drain_timeout": 1}
                root = project(
                    tmp_path / name, url, here=here, top=top, lead={}, unfinished_calls={"*": "repeat"}
                )
                fleets.append(stack.enter_context(served(root)))
            for fleet in fleets:
                await fleet.says("] running")
            asking = asyncio.create_task(asked(fleets[0]))
            await until(lambda: effects(here) == ["note a", "wait b"], timeout=60)
            fleets[0].send(ends)
            await until(lambda: effects(here).count("wait b") == 2, timeout=60)
            (here / "door").touch()
            runs, said = await ended(url)
            await asking
    assert {agent: (run.status, run.attempt) for agent, run in runs.items()} == {
        "lead": ("ok", 2),
        "clerk": ("ok", 2),
    }
    assert effects(here) == ["note a", "wait b", "wait b"]
    assert said[-1] == 'assistant complete: done: done: {"result":"waited b"}'


ROUTER = {"kind": "router", "agents": ["clerk"], "fallback": "clerk"}


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_a_router_goes_on_at_the_agent_that_it_chose(tmp_path: Path, era: str) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    root = project(tmp_path / "p", url, lead=ROUTER)
    with served(root) as fleet:
        await fleet.logs("clerk: ready")
        asking = asyncio.create_task(asked(fleet, era, "work"))
        await until(lambda: effects(root) == ["note a", "wait b"], timeout=60)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    (root / "door").touch()
    with served(root) as fleet:
        runs, said = await ended(url)
        assert said == ["user complete: work", f"assistant complete: {TOLD}"]
        assert {agent: (run.status, run.attempt) for agent, run in runs.items()} == {
            "lead": ("ok", 2),
            "clerk": ("ok", 2),
        }
        assert (runs["clerk"].within, effects(root)) == (runs["lead"].id, ["note a", "wait b"])
        # The conversation goes on with both.
        async with fleet.client("lead", era) as lead:
            message = {"message": "hi", "conversation_id": "a thread of mine"}
            assert text_of(await lead.call_tool("send_message", message)) == "turn 2"


@pytest.mark.slow
async def test_what_a_killed_fleet_paid_for_is_part_of_what_its_runs_cost(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    prices = {"generic.scripted": {"input": 3.0, "output": 15.0}}
    root = project(tmp_path / "p", url, lead={}, top={"prices": prices}, unfinished_calls={"*": "repeat"})
    with served(root) as fleet:
        await fleet.says("] running")
        asking = asyncio.create_task(asked(fleet))
        await until(lambda: effects(root) == ["note a", "wait b"], timeout=60)
        before = await until(lambda: paid(url), timeout=60)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    (root / "door").touch()
    with served(root):
        runs, _ = await ended(url)
        # The last steps of a run are written a moment after its end.
        costs = {agent: run.cost for agent, run in runs.items()}
        await until(lambda: is_paid(url, costs), timeout=60)
    ledger = await open_ledger(url)
    try:
        below = await ledger.costs.below([runs["lead"].id])
        by_model = await ledger.costs.sums("model")
    finally:
        await ledger.close()
    for agent, run in runs.items():
        assert run.attempt == 2
        assert run.unpriced == 0
        assert (run.cost or 0) > before[agent]
    assert below == {runs["lead"].id: {runs["clerk"].id: Cost.of(runs["clerk"])}}
    whole = Cost.sum(runs.values())
    assert [(each.key, each.cost) for each in by_model] == [("scripted", whole.cost)]


async def is_paid(url: str, costs: dict[str, int | None]) -> bool:
    """Whether the stored steps of each agent's run cost this."""
    return await paid(url) == costs


async def paid(url: str) -> dict[str, int]:
    """What the stored steps of each agent's run cost; nothing until both have some."""
    ledger = await open_ledger(url)
    try:
        runs = (await ledger.runs.list()).items
        steps = {run.agent: await ledger.steps.list(run.id) for run in runs}
    finally:
        await ledger.close()
    found = {agent: sum(each.cost or 0 for each in some) for agent, some in steps.items()}
    return found if len(found) == 2 and all(found.values()) else {}
