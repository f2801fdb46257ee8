"""Handlers of a fleet ask models of several backends: chosen, counted, bounded, and told."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support.backends import Server, servers
from support.live import all_ready, running
from support.typed import typed_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.fleet.local_port import LocalPort
from pallas.model import BackendChosen, Event, Notice, RunRequest

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]

DESK = """
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, Text
    from pallas.invocation import current
    from pallas.llm import BudgetExhausted, complete

    @dataclass
    class Ask:
        text: str

    async def asker(payload, metadata):
        try:
            answer = await complete(
                model="m-1",
                messages=[{"role": "user", "content": payload.text}],
                agent_id=metadata.own_name,
            )
        except BudgetExhausted as error:
            return HandlerResponse.respond(Text(f"stopped at {error.data['used']} of {error.data['limit']}"))
        return HandlerResponse.respond(Text(answer.content))

    async def spy(payload, metadata):
        answer = await complete(messages=[{"role": "user", "content": "What are you told?"}])
        invocation = current()
        seen = [metadata, payload, answer, answer.raw, invocation, dir(invocation.completer)]
        seen += [getattr(invocation.completer, "__dict__", ""), invocation.scratch]
        return HandlerResponse.respond(Text(repr(seen)))
"""
SECRET = "You are the keeper of the golden key."


@dataclass
class Stage:
    """A fleet and the two servers that its backends are."""

    fleet: Fleet
    first: Server
    second: Server
    agents: Path
    events: list[Event]

    async def say(self, agent: str, text: str = "hello", **more: Any) -> str:
        return (await self.fleet.kernel.run(RunRequest(agent, text, **more))).text

    async def save(self, document: dict[str, Any]) -> None:
        """Write agents.yaml, and wait until its backends are those of the fleet."""
        wanted = [each["id"] for each in document["llm"]["backends"]]
        self.agents.write_text(yaml.safe_dump(document), "utf-8")
        await until(lambda: [each.id for each in self.fleet.project.llm.backends] == wanted)

    def chosen(self) -> list[tuple[str, str]]:
        return [(e.backend, e.outcome) for e in self.events if isinstance(e, BackendChosen) and e.outcome]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with servers(["fine"], ["fine"]) as (first, second):
        backends = [
            {
                "provider": "openai",
                "id": name,
                "base_url": server.base,
                "api_key": f"${{{name}:key-of-{name}}}",
            }
            | {"supported_models": ["m-"], "priority": number, "timeout": 20}
            for number, (name, server) in enumerate((("first", first), ("second", second)), 1)
        ]
        root = typed_project(
            tmp_path_factory.mktemp("llm") / "project",
            DESK,
            {
                "asker": {"payload": "Ask", "agent": True},
                "apart": {
                    "payload": "Ask",
                    "handler": "desk:asker",
                    "agent": True,
                    "isolation": "process",
                },
                "spy": {"payload": "Ask", "agent": True, "prompt": SECRET},
            },
            top={"llm": {"max_tokens_per_thread": 250, "retry_base_delay": 0, "backends": backends}},
            config={"default_model": "openai.m-1"},
        )
        async with running(root, watch=True, database="memory") as fleet:
            await until(lambda: all_ready(fleet), timeout=60)
            events: list[Event] = []
            unlisten = fleet.hub.listen(events.append)
            yield Stage(fleet, first, second, root / "agents.yaml", events)
            unlisten()


@pytest.fixture(autouse=True)
def _anew(stage: Stage) -> None:
    stage.events.clear()
    stage.first.does[:] = stage.second.does[:] = ["fine"]


async def test_a_dead_backend_is_skipped_and_the_fleet_counts_it(stage: Stage) -> None:
    # HC-27, HC-30
    stage.first.does[:] = [503]
    used = stage.fleet.llms.usage("asker").total
    assert await stage.say("asker") == "fine"
    assert stage.chosen() == [("first", "failed"), ("second", "ok")]
    assert stage.fleet.llms.usage("asker").total - used == 50
    assert {each.agent for each in stage.events if isinstance(each, BackendChosen)} == {"asker"}
    said = stage.fleet.metrics.render().decode()
    assert 'pallas_llm_requests_total{backend="first",outcome="failed"} 1.0' in said
    assert 'pallas_llm_failovers_total{backend="second"} 1.0' in said


async def test_a_conversation_that_used_its_tokens_is_warned_of_and_stopped(stage: Stage) -> None:
    # HC-33
    said = [await stage.say("asker", conversation="long") for _ in range(5)]
    assert said == ["fine", "fine", "fine", "fine", "stopped at 200 of 250"]
    (notice,) = [each for each in stage.events if isinstance(each, Notice)]
    # It is the same error in a process of its own.
    assert [await stage.say("apart", conversation="x") for _ in range(5)] == said
    assert stage.fleet.llms.usage("apart").total == 200
    assert (notice.level, notice.agent) == ("warning", "asker")
    assert await stage.say("asker", conversation="another") == "fine"


async def test_a_thread_has_one_budget_by_whatever_name_it_is_continued(stage: Stage) -> None:
    # HC-33
    begun = await stage.fleet.kernel.run(RunRequest("asker", "hello", conversation="named"))
    for name in ("named", begun.thread, "named"):
        assert await stage.say("asker", conversation=name) == "fine"
    assert await stage.say("asker", conversation=begun.thread) == "stopped at 200 of 250"


async def test_a_handler_is_told_neither_its_prompt_nor_of_other_threads(stage: Stage) -> None:
    # HC-36
    await stage.say("asker", "a secret of somebody else", conversation="theirs")
    asked = [*stage.first.bodies, *stage.second.bodies]
    seen = await stage.say("spy")
    assert "golden" not in seen
    assert "somebody else" not in seen
    (body,) = [each for each in (*stage.first.bodies, *stage.second.bodies) if each not in asked]
    assert body["messages"] == [
        {"role": "system", "content": SECRET},
        {"role": "user", "content": "What are you told?"},
    ]
    assert "golden" not in repr(stage.events)


async def test_a_run_that_is_cancelled_ends_its_question(stage: Stage) -> None:
    stage.first.does[:] = stage.second.does[:] = [asyncio.Event()]
    run = asyncio.create_task(stage.say("asker"))
    await until(lambda: stage.first.active or stage.second.active)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await until(lambda: not stage.first.active and not stage.second.active)


async def test_backends_that_are_written_down_anew_are_asked_from_then_on(stage: Stage) -> None:
    # HC-30
    document = yaml.safe_load(stage.agents.read_text("utf-8"))
    _, second = document["llm"]["backends"]
    await stage.save({**document, "llm": {"backends": [{**second, "id": "only"}]}})
    try:
        assert await stage.say("asker") == "fine"
        assert stage.chosen() == [("only", "ok")]
        assert stage.second.headers[-1]["authorization"] == "Bearer key-of-second"
    finally:
        await stage.save(document)


@pytest.mark.parametrize("agent", ["asker", "apart"])
async def test_what_a_handler_asks_a_model_is_a_step_of_its_run(stage: Stage, agent: str) -> None:
    run_id = f"steps-of-{agent}"
    text = await stage.say(agent, "count my steps", run_id=run_id)
    port = LocalPort(stage.fleet)
    (step,) = await port.steps(run_id)
    detail = await port.step(run_id, 1)
    assert (step.name, step.state, step.messages) == ("m-1", "done", 1)
    assert json.loads(detail.request)["messages"][-1]["content"] == "count my steps"
    assert text in detail.response
