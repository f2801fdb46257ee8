"""Parameters of ``send_message`` calls and of agents.yaml, from the caller to the provider and back."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from mcp import Client
from support.live import ERAS, client, running, write_project
from support.providers import Provider, Reply, provider

from pallas.fleet.fleet import Fleet

_META = "local.pallas/params"


pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Fleet, Provider]]:
    """A fleet of an agent in the fleet's process and one in its own, with defaults, and their provider."""
    defaults = {"temperature": 0.4, "topP": 0.8, "extra": {"min_p": 0.1}}
    keys: dict[str, dict[str, Any]] = {name: {"params": defaults} for name in ("here", "there")}
    keys["there"] = {**keys["there"], "isolation": "process"}
    async with provider() as behind:
        config = behind.config("generic.qwen3")
        root = write_project(
            tmp_path_factory.mktemp("params"), {"here": None, "there": None}, keys=keys, config=config
        )
        async with running(root) as fleet:
            yield fleet, behind


@pytest.fixture
def served(shared: tuple[Fleet, Provider], monkeypatch: pytest.MonkeyPatch) -> tuple[Fleet, Provider]:
    """The same, whose provider answers again as at the beginning when the test is over."""
    _, behind = shared
    monkeypatch.setattr(behind, "answer", behind.answer)
    return shared


async def _send(connected: Client, params: Any, message: str = "hi", **arguments: Any) -> Any:
    meta: Any = {_META: params}
    return await connected.call_tool("send_message", {"message": message, **arguments}, meta=meta)


@pytest.mark.parametrize("era", ERAS)
async def test_parameters_in_meta_are_laid_over_the_defaults_in_either_spelling(
    served: tuple[Fleet, Provider], era: str
) -> None:
    # AG-8, AG-9, UN-5
    fleet, behind = served
    camel = {"topP": None, "maxTokens": 5, "toolChoice": "none", "systemAppend": "Be brief.", "top_a": 1}
    snake = {"top_p": None, "max_tokens": 5, "tool_choice": "none", "system_append": "Be brief.", "top_a": 1}
    for agent in ("here", "there"):
        behind.asked.clear()
        async with client(fleet, agent, era=era) as connected:
            for params in (camel, snake, {}):
                assert not (await _send(connected, params)).is_error
            for key, value in (("temperature", 3), ("topP", 2), ("stop", ["a"] * 5), ("maxTokens", 0)):
                refused = await _send(connected, {key: value})
                assert refused.is_error
                body = json.loads(refused.content[0].text)
                assert (body["data"]["type"], body["data"]["key"]) == ("PROTOCOL", key)
            assert (await _send(connected, [1])).is_error
        first, second, plain = (asked.body for asked in behind.asked)
        assert {**first, "messages": []} == {**second, "messages": []}
        assert first["messages"][0] == second["messages"][0]
        assert (first["temperature"], first["max_tokens"], first["top_a"]) == (0.4, 5, 1)
        assert "top_p" not in first
        assert first["messages"][0]["content"] == f"You are {agent}.\n\nBe brief."
        assert (plain["temperature"], plain["top_p"], plain["min_p"]) == (0.4, 0.8, 0.1)
        assert plain["messages"][0]["content"] == f"You are {agent}."


async def test_given_messages_stand_for_the_conversation_and_only_the_new_turn_is_kept(
    served: tuple[Fleet, Provider],
) -> None:
    # AG-14
    fleet, behind = served
    behind.answer = lambda asked: Reply(f"about {asked.said}")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "sky"}'}}
    given = [
        {"role": "system", "content": "Rhyme."},
        {"role": "user", "content": "made up"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "blue"},
        {"role": "user", "content": "new"},
    ]
    for agent in ("here", "there"):
        behind.asked.clear()
        async with client(fleet, agent) as connected:
            kept = f"kept-{agent}"
            await _send(connected, {}, "old", conversation_id=kept)
            answer = await _send(connected, {"messages": given}, "ignored", conversation_id=kept)
            await _send(connected, {}, "last", conversation_id=kept)
            broken = await _send(connected, {"messages": given[:3]}, conversation_id=kept)
        assert answer.content[0].text == "about new"
        assert "messages[2].tool_calls" in broken.content[0].text
        _, override, after = (asked.body["messages"] for asked in behind.asked)
        assert "Rhyme." in override[0]["content"]
        assert [message["role"] for message in override[1:]] == ["user", "assistant", "tool", "user"]
        assert override[2]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "sky"}'}
        assert (override[3]["tool_call_id"], override[3]["content"]) == ("c1", "blue")
        assert [_said(message) for message in after[1:]] == ["old", "about old", "new", "about new", "last"]


def _said(message: dict[str, Any]) -> str:
    content = message["content"]
    return str(content if isinstance(content, str) else content[0]["text"])
