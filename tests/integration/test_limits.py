"""Limits on what runs spend, in fleets with the offline model."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, agent_module, client, run_agent, running
from support.offline import model_record, offline_project
from support.scripted import model

from pallas.fleet.fleet import Fleet
from pallas.fleet.local_port import LocalPort
from pallas.limits.limit_reached import LimitReached
from pallas.model import Fault, LoopStopped, Principal, RunStarted, Step

pytestmark = pytest.mark.usefixtures("forked_children")

WRITTEN = "word " * 400
SCRIPT = f"""
rules:
  - when: {{last: user, system: You are desk, text: twenty}}
    say: I ask twenty.
    call:
{"".join(f'      - {{tool: writer, arguments: {{message: "page {n}"}}}}{chr(10)}' for n in range(20))}
  - when: {{last: user, system: You are desk, text: ask on}}
    say: Let me see.
    call: [{{tool: writer, arguments: {{message: "page 1"}}}}]
  - when: {{last: tool, system: You are desk, user: ask on}}
    say: And on.
    call: [{{tool: writer, arguments: {{message: "another page"}}}}]
  - when: {{last: user, system: You are writer}}
    delay: 0.05
    say: "{WRITTEN}"
  - when: {{last: tool}}
    say: "all is written"
  - when: {{last: user}}
    say: "just {{{{ last }}}}"
"""
OUT = 501
"""Tokens of what the writer writes."""


def project(root: Path, limits: dict[str, Any], **more: Any) -> Path:
    keys: dict[str, dict[str, Any]] = {
        "desk": {"peers": ["writer"], **more.pop("desk", {})},
        "writer": {"max_instances": 24, "params": {"max_tokens": 600}, **more.pop("writer", {})},
    }
    top = {"limits": limits, **more.pop("top", {})}
    return offline_project(root, {"desk": None, "writer": None}, SCRIPT, keys=keys, top=top, **more)


async def model_steps(fleet: Fleet) -> list[Step]:
    runs = [event.run_id for event in fleet.hub.since(0).events if isinstance(event, RunStarted)]
    found = [step for run in runs for step in await fleet.kernel.step_reader.list(run)]
    return [step for step in found if step.kind == "model"]


def tokens_of(steps: list[Step]) -> list[int]:
    return [(step.usage.input or 0) + (step.usage.output or 0) for step in steps]


@pytest.mark.slow
async def test_twenty_agents_at_once_exceed_a_limit_by_one_question_at_most(tmp_path: Path) -> None:
    limit = 5_000
    async with running(project(tmp_path, {"per_run": {"tokens": limit}})) as fleet:
        result = await run_agent(fleet, "desk", "twenty")
        assert result.stop_reason == "limit"
        assert result.text.startswith("I ask twenty.")
        assert "[Stopped: the limit limits.per_run.tokens (agents.yaml:" in result.text
        steps = await model_steps(fleet)
        spent = tokens_of(steps)
        assert limit - 1_300 < sum(spent) and sum(spent) - max(spent) < limit
        assert len(model_record(fleet).requests) == len(steps) < 20  # the others were not asked
        meter = fleet.kernel.spending.of(result.run_id)
        assert [account.used.tokens for account in meter.accounts] == [sum(spent)]


async def test_a_run_without_room_for_a_question_says_which_limit_and_where_it_is_set(tmp_path: Path) -> None:
    limits = {"per_run": {"steps": 100}}
    async with running(project(tmp_path, limits, desk={"limits": {"per_run": {"tokens": 1}}})) as fleet:
        for era in ERAS:
            async with client(fleet, "desk", era=era) as connected:
                result = await connected.call_tool("send_message", {"message": "hello"})
                assert result.is_error
                said = "".join(getattr(block, "text", "") for block in result.content)
                assert "the limit limits.per_run.tokens (agents.yaml:" in said
                assert "of 1 tokens is reached: this run used 0 tokens, and this question needs about" in said
                assert "raise the limit" in said and "Traceback" not in said
        assert not model_record(fleet).requests


async def test_a_run_that_meets_its_limit_ends_with_what_it_has(tmp_path: Path) -> None:
    async with running(project(tmp_path, {"per_run": {"steps": 3}})) as fleet:
        for era in ERAS:
            async with client(fleet, "desk", era=era) as connected:
                result = await connected.call_tool("send_message", {"message": "ask on"})
                said = "".join(getattr(block, "text", "") for block in result.content)
                assert not result.is_error
                assert said.startswith("Let me see.\n\nAnd on.\n\n[Stopped: the limit limits.per_run.steps (")
                assert result.meta is not None and result.meta["local.pallas/stopReason"] == "limit"


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_an_agent_gets_what_remains_of_the_limits_of_the_runs_above_it(
    tmp_path: Path, isolation: str
) -> None:
    # The first question of the desk, one of the writer, and none more.
    desk = {"limits": {"per_run": {"steps": 2}}, "isolation": isolation}
    writer = {"limits": {"per_run": {"steps": 50}}, "isolation": isolation}
    async with running(project(tmp_path, {}, desk=desk, writer=writer)) as fleet:
        result = await run_agent(fleet, "desk", "ask on")
        assert result.text.startswith("Let me see.\n\n[Stopped: the limit limits.per_run.steps (")
        assert result.stop_reason == "limit"
        assert len(model_record(fleet).requests) == 2
        meter = fleet.kernel.spending.of(result.run_id)
        assert meter is not None and meter.accounts[0].used.steps == 2
        assert (await run_agent(fleet, "writer", "page 1")).text == WRITTEN


async def test_money_is_counted_by_the_prices_of_the_project(tmp_path: Path) -> None:
    top = {"prices": {"*": {"input": 10.0, "output": 100.0}}}
    async with running(project(tmp_path, {"per_run": {"usd": 0.07}}, top=top)) as fleet:
        result = await run_agent(fleet, "desk", "twenty")
        assert result.stop_reason == "limit"
        steps = await model_steps(fleet)
        costs = [(step.usage.input or 0) * 10_000 + (step.usage.output or 0) * 100_000 for step in steps]
        account = fleet.kernel.spending.of(result.run_id).accounts[0]
        assert account.used.usd == sum(costs)
        assert sum(costs) - max(costs) < 70_000_000
        assert "of $0.0700 is reached" in result.text


async def test_models_without_a_price_are_refused_only_where_the_project_says_so(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"per_run": {"usd": 0.07}}
    async with model(tmp_path, SCRIPT) as other:
        config = {"generic": {"base_url": other.url, "api_key": "none"}}
        async with running(project(tmp_path / "allow", limits, config=config)) as fleet:
            assert (await run_agent(fleet, "desk", "hello")).text == "just hello"
        limits["unpriced"] = "refuse"
        async with running(project(tmp_path / "refuse", limits, config=config)) as fleet:
            with pytest.raises(Fault, match="the price of the model scripted is not known") as refused:
                await run_agent(fleet, "desk", "hello")
            assert isinstance(refused.value, LimitReached)


async def test_limits_of_a_day_count_for_each_caller_and_each_agent(tmp_path: Path) -> None:
    limits = {"per_caller": {"tokens_per_day": 400}}
    writer = {"limits": {"per_agent": {"tokens_per_day": 2_000}}}
    async with running(project(tmp_path, limits, writer=writer)) as fleet:
        ann, bob = Principal("token:ann"), Principal("token:bob")
        reached = await until_limit(fleet, "hello", "desk", ann)
        assert reached.data["limit"] == "per_caller.tokens_per_day"
        assert reached.retryable and 0 < reached.data["retry_after"] <= 86_400
        assert "this caller today used" in reached.message and "after midnight UTC" in reached.message
        assert (await run_agent(fleet, "desk", "hello", principal=bob)).text == "just hello"
        reached = await until_limit(fleet, "page", "writer", Principal("token:eve"))
        assert reached.data["limit"] == "per_caller.tokens_per_day"  # one answer takes more than a caller has
        for each in ("may", "joe", "kim"):
            await run_agent(fleet, "writer", "page", principal=Principal(f"token:{each}"))
        reached = await until_limit(fleet, "page", "writer", Principal("token:leo"))
        assert reached.data["limit"] == "per_agent.tokens_per_day"
        steps = tokens_of(await model_steps(fleet))
        used = {each.scope: each.used for each in await fleet.kernel.spending.list()}
        assert sum(used[scope] for scope in used if scope.startswith("caller:")) == sum(steps)
        assert used["agent:writer"] <= 2_000 + max(steps)


async def until_limit(fleet: Fleet, text: str, agent: str, principal: Principal) -> LimitReached:
    """The limit that this caller meets when it asks again and again."""
    for _ in range(100):
        try:
            await run_agent(fleet, agent, text, principal=principal)
        except LimitReached as reached:
            return reached
    raise AssertionError("no limit was met")


@pytest.mark.slow
async def test_two_fleets_on_one_ledger_share_what_a_caller_has_in_a_day(tmp_path: Path) -> None:
    limits = {"per_caller": {"tokens_per_day": 2_500}}
    database = f"sqlite:///{tmp_path}/ledger.sqlite3"
    roots = [project(tmp_path / name, limits) for name in ("one", "two")]
    ann = Principal("token:ann")
    async with running(roots[0], database=database) as one, running(roots[1], database=database) as two:

        async def page(number: int) -> int:
            try:
                await run_agent((one, two)[number % 2], "writer", "page", principal=ann)
            except LimitReached:
                return 0
            return 1

        answered = sum(await asyncio.gather(*map(page, range(12))))
        spent = [*tokens_of(await model_steps(one)), *tokens_of(await model_steps(two))]
        assert len(spent) == answered < 12
        assert 2_500 - max(spent) < sum(spent) < 2_500 + max(spent)
        for fleet in (one, two):
            (status,) = await fleet.kernel.spending.list()
            assert (status.scope, status.used, status.held) == ("caller:token:ann", sum(spent), 0)
    async with running(roots[0], database=database) as again:
        reached = await until_limit(again, "page", "writer", ann)
        assert reached.data["used"] >= 2_500 - max(spent)


OVER_MCP = """
rules:
  - when: {last: user, system: You are desk}
    say: I ask.
    call: [{tool: writer__send_message, arguments: {message: "page"}}]
  - when: {last: user, system: You are writer}
    say: "a page"
  - when: {last: tool}
    say: "it says {{ result }}"
"""


def over_mcp(root: Path, desk: dict[str, Any], **top: Any) -> Path:
    agents = {"desk": agent_module("desk", ("writer",)), "writer": None}
    keys = {"desk": {"depends_on": ["writer"], **desk}}
    return offline_project(root, agents, OVER_MCP, peers=("writer",), keys=keys, top=top)


async def test_agents_that_are_asked_over_mcp_get_what_remains_too(tmp_path: Path) -> None:
    async with running(over_mcp(tmp_path, {"limits": {"per_run": {"steps": 2}}})) as fleet:
        result = await run_agent(fleet, "desk", "go")
        assert result.text.startswith("I ask.\n\n[Stopped: the limit limits.per_run.steps (")
        assert len(model_record(fleet).requests) == 2


async def test_a_caller_pays_for_agents_that_are_asked_over_mcp(tmp_path: Path) -> None:
    limits = {"per_caller": {"tokens_per_day": 100_000}}
    async with running(over_mcp(tmp_path, {}, limits=limits)) as fleet:
        await run_agent(fleet, "desk", "go", principal=Principal("token:ann"))
        spent = tokens_of(await model_steps(fleet))
        assert len(spent) == 3
        accounts = {each.scope: each.used for each in await fleet.kernel.spending.list()}
        assert accounts["caller:token:ann"] == sum(spent)


async def test_a_summary_of_a_conversation_is_counted(tmp_path: Path) -> None:
    script = """
rules:
  - when: {last: user, text: Summarise our conversation}
    say: "a summary"
  - when: {last: user}
    say: "just {{ last }}"
"""
    keys = {"desk": {"model_capabilities": {"context_window": 400}, "limits": {"per_run": {"steps": 9}}}}
    async with running(offline_project(tmp_path, {"desk": None}, script, keys=keys)) as fleet:
        long = "word " * 120
        used = []
        for number in range(4):
            result = await run_agent(
                fleet, "desk", f"{number} {long}", conversation="a-conversation", new_conversation=not number
            )
            assert result.stop_reason == "endTurn"
            used.append(fleet.kernel.spending.of(result.run_id).accounts[0].used.steps)
        assert max(used) > 1 == min(used)  # some with a summary
        assert sum(used) == len(model_record(fleet).requests)


async def test_the_workbench_reads_the_limits_of_a_run(tmp_path: Path) -> None:
    async with running(project(tmp_path, {"per_run": {"steps": 3}})) as fleet:
        result = await run_agent(fleet, "desk", "hello")
        (limit,) = await LocalPort(fleet).run_limits(result.run_id)
        assert (limit.key, limit.used, limit.left) == ("per_run.steps", 1, 2)
        assert await LocalPort(fleet).run_limits("another") == ()
        stopped = await run_agent(fleet, "desk", "ask on")
        events = fleet.hub.since(0).events
        ends = [each for each in events if isinstance(each, LoopStopped)]  # the writer's too
        assert {(each.reason, each.limit) for each in ends} == {("limit", "per_run.steps")}
        assert ends[-1].run_id == stopped.run_id
