"""The agent that the conformance suite is run against: a production agent with more in it."""

from typing import Any

import mcp_types as mt
import pytest
from conformance.targets import fixture
from mcp import Client
from support.live import ERAS
from support.tasks import TaskClient


@pytest.mark.parametrize("era", ERAS)
async def test_the_fixture_is_an_agent_with_the_suites_tools(era: str) -> None:
    async with fixture() as url, Client(url, mode=era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[:2] == ["send_message", "get_health"]
        assert {"test_image_content", "json_schema_2020_12_tool", "test_custom_headers"} <= set(names)
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert {"fixture_history", "test_simple_prompt"} <= set(prompts)
        health = await client.call_tool("get_health", {})
        assert not health.is_error
        seen: list[float] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            seen.append(progress)

        await client.call_tool("test_tool_with_progress", {}, progress_callback=hear)
        assert seen == [0, 50, 100]


@pytest.mark.parametrize("era", ERAS)
async def test_the_fixture_asks_its_client_in_the_manner_of_the_era(era: str) -> None:
    async def answer(_: Any, params: mt.ElicitRequestParams) -> mt.ElicitResult:
        return mt.ElicitResult(action="accept", content={"name": "Alice"})

    tool, arguments = "test_input_required_result_elicitation", {}
    if era == "legacy":
        tool, arguments = "test_elicitation", {"message": "Who are you?"}
    async with fixture() as url, Client(url, mode=era, elicitation_callback=answer) as client:
        result = await client.call_tool(tool, arguments)
    assert isinstance(result.content[0], mt.TextContent)
    assert "Alice" in result.content[0].text


async def test_the_fixtures_longer_work_becomes_tasks_of_the_production_extension() -> None:
    async with fixture() as url:
        client, plain = TaskClient(url, answers=True), TaskClient(url, declares=False)
        made = await client.call("multi_input")
        waits = await client.told(made["taskId"], lambda task: len(task.get("inputRequests", ())) == 2)
        answered = {"action": "accept", "content": {"confirm": True}}
        await client.answer(made["taskId"], dict.fromkeys(waits["inputRequests"], answered))
        done = await client.until(made["taskId"])
        assert done["result"]["content"][0]["text"].count("accept {'confirm': True}") == 2
        assert (await client.call("greet", name="Ada"))["content"][0]["text"] == "Hello, Ada!"
        assert (await plain.call("slow_compute", seconds=0))["resultType"] == "complete"
        refused = await plain.ask("tools/call", "failing_job", name="failing_job", arguments={})
        assert refused["error"]["code"] == -32021
