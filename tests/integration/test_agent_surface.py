"""What an agent serves over MCP, to real clients of both protocol eras."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from support.live import ECHO, ERAS, agent_module, ask, client, module_fleet, write_project

from pallas.fleet.fleet import Fleet

CALL = '***CALL_TOOL echo__{} {{"text": "hi"}}'
LINES = re.compile(r"^([^/]+)/(.+): (started|completed|failed)$|^(\S+) step (\d+) \((llm|tool)\)$")


@module_fleet()
def fleet(folder: Path) -> Path:
    return write_project(
        folder,
        {"harper": agent_module("harper", ("echo",)), "forgetful": None},
        keys={"forgetful": {"instance_scope": "request"}, "harper": {"description": "Answers questions"}},
        config=ECHO,
    )


pytestmark = pytest.mark.asyncio(loop_scope="module")

both_eras = pytest.mark.parametrize("era", ERAS)


async def _call(
    connected: Client, arguments: dict[str, Any], **options: Any
) -> tuple[Any, list[tuple[float, float | None, str | None]]]:
    seen: list[tuple[float, float | None, str | None]] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        seen.append((done, total, message))

    result = await connected.call_tool("send_message", arguments, progress_callback=progress, **options)
    return result, seen


@both_eras
async def test_exactly_two_tools_and_the_history_prompt_are_listed(fleet: Fleet, era: str) -> None:
    # PR-15
    async with client(fleet, "harper", era=era) as harper:
        assert [tool.name for tool in (await harper.list_tools()).tools] == ["send_message", "get_health"]
        prompts = (await harper.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["harper_history"]
        assert [(a.name, a.required) for a in prompts[0].arguments or []] == [("conversation_id", False)]
    async with client(fleet, "forgetful", era=era) as forgetful:
        assert (await forgetful.list_prompts()).prompts == []


@both_eras
async def test_get_health_is_listed_exactly_as_the_contract_says(fleet: Fleet, era: str) -> None:
    # PI-7
    async with client(fleet, "harper", era=era) as harper:
        tool = next(t for t in (await harper.list_tools()).tools if t.name == "get_health")
        assert tool.description == (
            "Returns the health status of this agent and its downstream dependencies."
        )
        assert tool.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
        result = await harper.call_tool("get_health", {"verbose": True})
        assert result.is_error
        assert "takes no arguments" in result.content[0].text  # type: ignore[union-attr]


@both_eras
async def test_get_health_answers_one_block_of_json(fleet: Fleet, era: str) -> None:
    # PI-8, PI-18
    async with client(fleet, "harper", era=era) as harper:
        seen: list[Any] = []

        async def progress(*what: Any) -> None:
            seen.append(what)

        result = await harper.call_tool("get_health", {}, progress_callback=progress)
        (block,) = result.content
        body = json.loads(block.text)  # type: ignore[union-attr]
        assert body["status"] == "ok"
        assert re.match(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", body["timestamp"])
        assert seen == []


@both_eras
async def test_the_agents_own_name_is_a_hidden_alias(fleet: Fleet, era: str) -> None:
    # PR-16
    async with client(fleet, "harper", era=era) as harper:
        by_alias = await harper.call_tool("harper", {"message": "hello"})
        by_name = await harper.call_tool("send_message", {"message": "hello"})
        assert by_alias.content == by_name.content
        assert not by_alias.is_error
        refused = await harper.call_tool("harper", {"text": "hello"})
        assert refused.is_error


@both_eras
async def test_progress_has_the_contracts_lines_counter_and_totals(fleet: Fleet, era: str) -> None:
    # PI-19, PI-20, PI-21, PI-24
    async with client(fleet, "harper", era=era) as harper:
        result, seen = await _call(harper, {"message": CALL.format("echo")})
        assert not result.is_error
        assert seen == [
            (1.0, None, "harper step 1 (llm)"),
            (2.0, None, "harper step 2 (tool)"),
            (3.0, None, "echo/echo: started"),
            (4.0, 4.0, "echo/echo: completed"),
            (5.0, None, "harper step 3 (llm)"),
        ]


@both_eras
async def test_a_failing_tool_says_failed_and_not_why(fleet: Fleet, era: str) -> None:
    # PI-19
    async with client(fleet, "harper", era=era) as harper:
        _, seen = await _call(harper, {"message": CALL.format("boom")})
        assert (4.0, 4.0, "echo/boom: failed") in seen
        assert "kaput" not in repr(seen)


@both_eras
async def test_without_a_token_there_is_no_progress(fleet: Fleet, era: str) -> None:
    # PI-18
    heard: list[Any] = []

    async def on_message(message: Any) -> None:
        heard.append(message)

    async with client(fleet, "harper", era=era) as harper:
        await harper.call_tool("send_message", {"message": CALL.format("echo")})
        assert heard == []
        for token in ("text-token", 7):
            _, seen = await _call(harper, {"message": "x"}, meta={"progressToken": token})
            assert all(LINES.match(message or "") for _, _, message in seen)


@both_eras
async def test_a_conversation_continues_by_its_handle(fleet: Fleet, era: str) -> None:
    # PR-18, PR-19
    handle = f"continue-{era}"
    async with client(fleet, "harper", era=era) as harper:
        await ask(harper, "first words", conversation_id=handle)
        await ask(harper, "second words", conversation_id=handle)
        prompt = await harper.get_prompt("harper_history", {"conversation_id": handle})
        said = [(m.role, m.content.text) for m in prompt.messages]  # type: ignore[union-attr]
        assert said == [
            ("user", "first words"),
            ("assistant", "first words"),
            ("user", "second words"),
            ("assistant", "second words"),
        ]


async def test_a_conversation_goes_on_in_the_other_era(fleet: Fleet) -> None:
    # PR-19
    async with client(fleet, "harper", era=ERAS[0]) as modern, client(fleet, "harper", era=ERAS[1]) as old:
        await ask(modern, "said in one era", conversation_id="both")
        await ask(old, "said in the other", conversation_id="both")
        prompt = await modern.get_prompt("harper_history", {"conversation_id": "both"})
        assert len(prompt.messages) == 4


@both_eras
async def test_a_handle_is_made_on_request_and_told_in_the_metadata(fleet: Fleet, era: str) -> None:
    # PR-19
    async with client(fleet, "harper", era=era) as harper:
        made = await harper.call_tool("send_message", {"message": "one", "conversation_id": "new"})
        handle = (made.meta or {})["local.pallas/conversationId"]
        assert len(handle) >= 24
        await ask(harper, "two", conversation_id=handle)
        prompt = await harper.get_prompt("harper_history", {"conversation_id": handle})
        assert len(prompt.messages) == 4
        other = await harper.call_tool("send_message", {"message": "x", "conversation_id": "new"})
        assert (other.meta or {})["local.pallas/conversationId"] != handle


@both_eras
async def test_another_caller_is_refused_a_handle(fleet: Fleet, era: str) -> None:
    # PR-15, PR-19
    handle = f"alices-{era}"
    async with (
        client(fleet, "harper", era=era, bearer="alice-token") as alice,
        client(fleet, "harper", era=era, bearer="bob-token") as bob,
    ):
        await ask(alice, "alice's secret", conversation_id=handle)
        result = await bob.call_tool("send_message", {"message": "and?", "conversation_id": handle})
        assert result.is_error
        assert "not found" in result.content[0].text  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="not found"):
            await bob.get_prompt("harper_history", {"conversation_id": handle})
        assert "alice's secret" in repr(await alice.get_prompt("harper_history", {"conversation_id": handle}))


async def test_a_handshake_session_is_a_conversation_of_its_own(fleet: Fleet) -> None:
    # PR-19
    async with client(fleet, "harper", era="legacy") as one, client(fleet, "harper", era="legacy") as two:
        await ask(one, "one's words")
        await ask(two, "two's words")
        mine = repr(await one.get_prompt("harper_history", {}))
        assert "one's words" in mine
        assert "two's words" not in mine


async def test_modern_callers_without_a_handle_share_nothing(fleet: Fleet) -> None:
    # PR-19
    async with client(fleet, "harper") as one, client(fleet, "harper") as two:
        await ask(one, "one's words")
        prompt = await two.get_prompt("harper_history", {})
        assert prompt.messages == []


@both_eras
async def test_twenty_calls_on_one_conversation_all_succeed(fleet: Fleet, era: str) -> None:
    # PR-19
    handle = f"twenty-{era}"
    async with client(fleet, "harper", era=era) as harper:
        answers = await asyncio.gather(
            *(ask(harper, f"message {number}", conversation_id=handle) for number in range(20))
        )
        assert sorted(answers) == sorted(f"message {number}" for number in range(20))
        prompt = await harper.get_prompt("harper_history", {"conversation_id": handle})
        roles = [message.role for message in prompt.messages]
        assert roles == ["user", "assistant"] * 20


@both_eras
async def test_an_agent_of_request_scope_remembers_nothing(fleet: Fleet, era: str) -> None:
    # PR-15
    async with client(fleet, "forgetful", era=era) as forgetful:
        await ask(forgetful, "remember me", conversation_id="x")
        assert fleet.kernel.stats("forgetful").total > 0
        with pytest.raises(MCPError):
            await forgetful.get_prompt("forgetful_history", {"conversation_id": "x"})


@both_eras
async def test_wrong_arguments_say_which_and_what_is_taken(fleet: Fleet, era: str) -> None:
    async with client(fleet, "harper", era=era) as harper:
        for arguments, says in (
            ({"message": "x", "mesage": "y"}, "unknown argument mesage"),
            ({}, "message is missing"),
            ({"message": "x", "images": [{"data": "AA"}]}, r"images[0] needs data"),
            ({"message": "x", "conversation_id": ""}, "1 to 200 printable"),
        ):
            result = await harper.call_tool("send_message", arguments)
            body = json.loads(result.content[0].text)  # type: ignore[union-attr]
            assert result.is_error
            assert says in body["error"]
            assert body["code"] == -32000
            assert body["data"] == {"type": "PROTOCOL", "retryable": False}


@both_eras
async def test_images_are_refused_by_a_model_without_vision(fleet: Fleet, era: str) -> None:
    # PR-17
    image = {"data": "iVBORw0KGgoAAAAA", "mime_type": "image/png"}
    async with client(fleet, "harper", era=era) as harper:
        result = await harper.call_tool("send_message", {"message": "see", "images": [image]})
        assert result.is_error
        assert "no vision" in result.content[0].text  # type: ignore[union-attr]


@both_eras
async def test_given_history_is_used_and_a_bad_row_is_skipped(fleet: Fleet, era: str) -> None:
    # PR-18
    rows = [
        {"role": "user", "content": "earlier"},
        {"role": "robot", "content": "not a role"},
        "not a row",
        {"role": "assistant", "content": "answer"},
    ]
    handle = f"history-{era}"
    async with client(fleet, "harper", era=era) as harper:
        await ask(harper, "now", conversation_id=handle, history=rows)
        prompt = await harper.get_prompt("harper_history", {"conversation_id": handle})
        said = [m.content.text for m in prompt.messages]  # type: ignore[union-attr]
        assert said == ["earlier", "answer", "now", "now"]


@both_eras
async def test_cancelling_a_call_stops_the_tool_and_the_next_turn_works(fleet: Fleet, era: str) -> None:
    handle = f"cancel-{era}"
    async with client(fleet, "harper", era=era) as harper:
        started = asyncio.Event()

        async def progress(_: float, __: float | None, message: str | None) -> None:
            if message == "echo/slow: started":
                started.set()

        call = asyncio.create_task(
            harper.call_tool(
                "send_message",
                {"message": CALL.format("slow"), "conversation_id": handle},
                progress_callback=progress,
            )
        )
        async with asyncio.timeout(60):
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await ask(harper, "still there?", conversation_id=handle) == "still there?"
        assert fleet.kernel.stats("harper").active == 0
