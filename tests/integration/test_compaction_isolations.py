"""Summaries, and messages in place of a thread, with agents that run by themselves or by conversation."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.live import agent_module, module_fleet
from support.offline import offline_project

from pallas.fleet.fleet import Fleet

SCRIPT = """
rules:
  - when: {last: user, text: two tools}
    call: [{tool: echo__echo, arguments: {text: "one"}}, {tool: echo__echo, arguments: {text: "two"}}]
  - when: {last: tool}
    say: "the tools said so"
  - when: {last: user}
    say: "turn {{ turns }}"
"""
AGENTS: dict[str, dict[str, Any]] = {
    "far": {"isolation": "process"},
    "own": {"instance_scope": "conversation"},
}
SMALL = {"model_capabilities": {"context_window": 900}}
pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@module_fleet(database="memory", ready=True)
def fleet(folder: Path) -> Path:
    keys = {**AGENTS, **{f"{name}_small": {**more, **SMALL} for name, more in AGENTS.items()}}
    modules: dict[str, str | None] = {name: agent_module(name, ("echo",)) for name in keys}
    return offline_project(folder, modules, SCRIPT, keys=keys)


async def answer_over_rest(
    fleet: Fleet, agent: str, thread: str | None = None, **body: Any
) -> dict[str, Any]:
    """The answer over REST."""
    base = f"{fleet.ports.origin}/api/v1"
    async with httpx2.AsyncClient(base_url=base, trust_env=False, timeout=60) as api:
        answer = await api.post(f"/agents/{agent}/chat", json={"threadId": thread, **body})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest.mark.parametrize("agent", list(AGENTS))
async def test_nothing_of_messages_in_place_of_a_thread_stays_with_its_instance(
    fleet: Fleet, agent: str
) -> None:
    # AG-14
    first = await answer_over_rest(fleet, agent, message="hello")
    thread = first["threadId"]
    assert (await answer_over_rest(fleet, agent, thread, message="two tools"))["text"].endswith(
        "the tools said so"
    )
    story = [{"role": role, "content": f"story {n}"} for n in range(4) for role in ("user", "assistant")]
    given = [*story, {"role": "user", "content": "and now?"}]
    assert (await answer_over_rest(fleet, agent, thread, messages=given))["text"] == "turn 5"
    assert (await answer_over_rest(fleet, agent, thread, message="on"))["text"] == "turn 4"


@pytest.mark.slow
@pytest.mark.parametrize("agent", [f"{name}_small" for name in AGENTS])
async def test_a_summary_takes_the_place_of_what_an_instance_knows(fleet: Fleet, agent: str) -> None:
    thread: str | None = None
    for number in range(6):
        answer = await answer_over_rest(
            fleet, agent, thread, message="two tools" if number == 1 else "word " * 150
        )
        thread = answer["threadId"]
    assert int(answer["text"].removeprefix("turn ")) < 6
    assert fleet.ledger is not None
    assert thread is not None
    rows = (await fleet.ledger.threads.messages(thread, limit=200)).items
    assert len([row for row in rows if row.summary]) >= 2
    assert {row.status for row in rows} == {"complete"}
    history, _ = await fleet.ledger.threads.history(thread)
    assert history[0].summary
    assert len([each for each in history if each.summary]) == 1
