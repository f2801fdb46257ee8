"""What steps cost is what runs, trees, threads, agents, models, metrics, REST and the command line say."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.kept import written
from support.live import ERAS, agent_module, all_ready, ask, client, running
from support.offline import offline_project
from support.scripted import Model, model
from support.surfaces import typed
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import Cost, RunFinished
from pallas.model.fault_rules import FaultPlan, FaultRule
from pallas.model.money import USD, cost_in

IN, OUT = 3_000, 15_000
"""Nano-US-dollars of a token of the model ``priced``."""
SCRIPT = """
rules:
  - when: {last: user, text: Summarise our conversation}
    say: "a summary"
  - when: {last: user, system: You are boss, text: hang}
    call: [{tool: lead, arguments: {message: "hang"}}]
  - when: {last: user, system: You are lead, text: hang}
    call: [{tool: clerk, arguments: {message: "hang"}}]
  - when: {last: user, system: You are clerk, text: hang}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user, system: You are boss, text: work}
    call:
      - {tool: lead, arguments: {message: "work on it"}}
      - {tool: loop__send_message, arguments: {message: "around"}}
  - when: {last: user, system: You are lead, text: work}
    call: [{tool: clerk, arguments: {message: "write it"}}]
  - when: {last: user, system: You are clerk, text: write}
    call: [{tool: echo__echo, arguments: {text: "x"}}]
  - when: {last: tool}
    say: "found: {{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}: {{ last }}"
"""
HANDS = '''
from dataclasses import dataclass

from pallas.contract import HandlerResponse
from pallas.llm import complete


@dataclass
class Task:
    about: str


async def teller(payload: Task, metadata) -> HandlerResponse:
    """Ask a model twice."""
    for text in ("one", "two"):
        said = await complete(
            model="", messages=[{"role": "user", "content": text}], agent_id=metadata.own_name
        )
    return HandlerResponse.respond(Task(said.content))
'''
TELLER = {
    "kind": "handler",
    "module": None,
    "handler": "hands:teller",
    "payload": "hands:Task",
    "agent": True,
}
PRICES = {"generic.scripted": {"input": 3.0, "output": 15.0}}
pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def other_model(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Model]:
    """A model on this machine that is not the project's own."""
    async with model(tmp_path_factory.mktemp("other"), "rules: [{say: fine}]") as other:
        yield other


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, other_model: Model) -> AsyncIterator[Fleet]:
    root = offline_project(
        tmp_path_factory.mktemp("costs"),
        {
            "boss": agent_module("boss", ("loop",)),
            "lead": agent_module("lead"),
            "clerk": agent_module("clerk", ("echo",)),
            "loop": agent_module("loop"),
            "small": agent_module("small"),
            "router": None,
            "unknown": agent_module("unknown", model="groq.other"),
            "teller": None,
            "far_teller": None,
        },
        SCRIPT,
        peers=("loop",),
        files={"hands.py": HANDS},
        top={"prices": PRICES},
        config={"groq": {"base_url": other_model.url, "api_key": "none"}},
        keys={
            "boss": {"peers": ["lead"]},
            "lead": {"peers": ["clerk"], "isolation": "process"},
            "teller": {**TELLER, "description": "Tells."},
            "far_teller": {**TELLER, "description": "Tells.", "isolation": "process"},
            "small": {"model_capabilities": {"context_window": 900}},
            "router": {"kind": "router", "module": None, "agents": ["loop"], "fallback": "loop"},
        },
    )
    async with running(
        root, database="memory", faults=FaultPlan((FaultRule("*scripted", "500", (2,)),))
    ) as one:
        await until(lambda: all_ready(one), timeout=60)
        async with client(one, "boss") as boss:  # in this run a call of the model fails
            await ask(boss, "work", conversation_id="first")
        await runs_of(one, 0)
        yield one


async def costs_of_steps(fleet: Fleet, run: str) -> Cost:
    """What the steps of a run cost, each by its tokens."""
    steps = [each for each in await fleet.kernel.step_reader.list(run) if each.kind == "model"]
    for step in steps:
        counted = (step.usage.input or 0) * IN + (step.usage.output or 0) * OUT
        assert step.cost == (counted if step.usage.output is not None else None)
    return Cost.sum(steps)


async def runs_of(fleet: Fleet, since: int) -> dict[str, RunFinished]:
    """The runs that ended, by their ids; the ledger has them all."""
    assert fleet.ledger is not None
    found = [each for each in fleet.hub.since(since).events if isinstance(each, RunFinished)]
    for each in found:
        await written(fleet.ledger, each.run_id)
    return {each.run_id: each for each in found}


async def get(fleet: Fleet, path: str, **query: str) -> Any:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        answer = await http.get(f"{fleet.ports.origin}/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def printed(fleet: Fleet, *words: str) -> str:
    """What `pallas get` prints."""
    return await typed("get", *words, "--url", fleet.ports.origin)


def metric(fleet: Fleet, name: str) -> float:
    """The sum of all series of a counter."""
    lines = fleet.surfaces.metrics.render().decode().splitlines()
    return sum(float(each.rpartition(" ")[2]) for each in lines if each.startswith(f"pallas_{name}{{"))


@pytest.mark.slow
@pytest.mark.parametrize("era", ERAS)
async def test_sums_are_those_of_steps_on_every_surface(fleet: Fleet, era: str) -> None:
    before, paid = fleet.hub.seq, metric(fleet, "cost_usd_total")
    handle = f"work {era}"
    async with client(fleet, "boss", era=era) as boss:
        result = await boss.call_tool("send_message", {"message": "work", "conversation_id": handle})
        assert not result.is_error
    runs = await runs_of(fleet, before)
    assert sorted(each.agent for each in runs.values()) == ["boss", "clerk", "lead", "loop"]
    own = {run_id: await costs_of_steps(fleet, run_id) for run_id in runs}
    assert {run_id: Cost.of(each) for run_id, each in runs.items()} == own
    total = Cost.sum(own.values())
    assert total.cost and not total.unpriced
    # What the caller gets.
    assert result.meta is not None
    (root,) = (each.run_id for each in runs.values() if each.agent == "boss")
    told = result.meta["local.pallas/cost"]
    assert (cost_in(told), cost_in(told, tree=True)) == (own[root], total)
    # Runs, the thread and sums over REST.
    documents = {each: await get(fleet, f"/runs/{each}") for each in runs}
    assert {each: cost_in(document) for each, document in documents.items()} == own
    assert cost_in(documents[root], tree=True) == total
    listed = {each["id"]: each for each in (await get(fleet, "/runs", limit="200"))["items"]}
    assert {each: listed[each]["treeCost"] for each in runs} == {
        each: document["treeCost"] for each, document in documents.items()
    }
    assert cost_in(await get(fleet, f"/threads/{documents[root]['threadId']}")) == total
    steps = (await get(fleet, f"/runs/{root}/steps"))["items"]
    assert Cost.sum(cost_in(each) for each in steps) == own[root]
    # Metrics.
    assert metric(fleet, "cost_usd_total") - paid == pytest.approx((total.cost or 0) / USD, abs=1e-9)


async def test_sums_by_anything_are_the_same_whole(fleet: Fleet) -> None:
    ids = {each["id"]: each for each in (await get(fleet, "/runs", limit="200"))["items"]}
    whole = Cost.sum(cost_in(each) for each in ids.values())
    steps = [each for run_id in ids for each in await fleet.kernel.step_reader.list(run_id)]
    # An attempt that failed costs nothing.
    statuses = {tuple(each.status for each in step.attempts) for step in steps if step.kind == "model"}
    assert statuses == {(200,), (500, 200)}
    for by in ("agent", "caller", "thread", "version", "model"):
        document = await get(fleet, "/costs", by=by)
        assert cost_in(document["total"]) == whole, by
        assert Cost.sum(cost_in(each) for each in document["items"]) == whole, by
    by_agent = {each["key"]: cost_in(each) for each in (await get(fleet, "/costs", by="agent"))["items"]}
    assert by_agent["lead"] == Cost.sum(cost_in(each) for each in ids.values() if each["agent"] == "lead")
    assert by_agent["lead"] == Cost.of(next(a for a in fleet.snapshot().agents if a.name == "lead"))
    assert not (await get(fleet, "/costs", since="2100-01-01"))["items"]
    text = await printed(fleet, "costs", "--by", "agent")
    assert whole.text in text.splitlines()[-1]
    shown = json.loads(await printed(fleet, "costs", "--by", "model", "-o", "json"))
    assert cost_in(shown["total"]) == whole


async def test_a_cancelled_run_costs_what_was_asked(fleet: Fleet) -> None:
    before = fleet.hub.seq
    async with client(fleet, "boss") as boss:
        asking = asyncio.create_task(ask(boss, "hang", conversation_id="hang"))
        await until(lambda: any(run.agent == "clerk" and run.tools for run in fleet.kernel.in_flight))
        (root,) = (run.id for run in fleet.kernel.in_flight if run.agent == "boss")
        # What it cost so far is known before it ends.
        assert cost_in(await get(fleet, f"/runs/{root}"), tree=True).cost
        fleet.kernel.cancel(root)
        with pytest.raises(AssertionError):
            await asking
        await until(lambda: not fleet.kernel.in_flight)
    runs = await runs_of(fleet, before)
    assert {each.outcome for each in runs.values()} == {"cancelled"}
    own = [await costs_of_steps(fleet, run_id) for run_id in runs]
    assert len(own) == 3
    assert all(each.cost for each in own)
    document = await get(fleet, f"/runs/{root}")
    assert cost_in(document, tree=True) == Cost.sum(own)
    assert cost_in(await get(fleet, f"/threads/{document['threadId']}")) == Cost.sum(own)


@pytest.mark.slow
async def test_a_summary_is_paid_for_by_its_run(fleet: Fleet) -> None:
    async with client(fleet, "small") as small:
        for turn in range(3):
            before = fleet.hub.seq
            await ask(small, f"{turn} " + "word " * 330, conversation_id="small")
    (run,) = (await runs_of(fleet, before)).values()
    steps = await fleet.kernel.step_reader.list(run.run_id)
    assert [each.kind for each in steps][:3] == ["compaction", "model", "model"]
    assert Cost.of(run) == await costs_of_steps(fleet, run.run_id)


async def test_a_router_does_not_pay_for_the_agent_that_it_asks(fleet: Fleet) -> None:
    before = fleet.hub.seq
    async with client(fleet, "router") as router:
        result = await router.call_tool("send_message", {"message": "hi"})
    runs = {each.agent: each for each in (await runs_of(fleet, before)).values()}
    assert (Cost.of(runs["router"]), bool(runs["loop"].cost)) == (Cost(), True)
    assert result.meta is not None
    assert cost_in(result.meta["local.pallas/cost"], tree=True) == Cost.of(runs["loop"])


@pytest.mark.parametrize("agent", ["teller", "far_teller"])
async def test_what_a_handler_asks_models_is_paid_for_by_its_run(fleet: Fleet, agent: str) -> None:
    before = fleet.hub.seq
    async with client(fleet, agent) as teller:
        await ask(teller, "it")
    (run,) = (await runs_of(fleet, before)).values()
    steps = await fleet.kernel.step_reader.list(run.run_id)
    assert [each.kind for each in steps] == ["model", "model"]
    assert Cost.of(run) == await costs_of_steps(fleet, run.run_id)
    assert run.cost


async def test_what_is_not_known_stays_unknown(fleet: Fleet) -> None:
    before = fleet.hub.seq
    async with client(fleet, "unknown") as unknown:
        result = await unknown.call_tool("send_message", {"message": "hi"})
    (run,) = (await runs_of(fleet, before)).values()
    assert Cost.of(run) == Cost(None, 1)
    assert result.meta is not None
    assert result.meta["local.pallas/cost"] == {
        "cost": None,
        "unpriced": 1,
        "treeCost": None,
        "treeUnpriced": 1,
    }
    assert metric(fleet, "unpriced_steps_total") == 1
    table = await printed(fleet, "runs", "--agent", "unknown")
    assert "unknown" in table.splitlines()[1].split("unknown", 1)[1]
