"""A run's parameters arrive at the provider, each kind in its own words, and nothing of them stays."""

import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.live import agent_module, write_project
from support.project_modules import own_modules
from support.providers import Asked, Provider, Reply, in_turn, provider
from support.waiting import until

from pallas.config import load_project
from pallas.config.models import Definition
from pallas.executors import ExecutorTurn, TurnResult
from pallas.executors.fastagent.fastagent_executor import FastAgentExecutor
from pallas.model import Event, Fault, FaultType, Message, Params, TextDelta, ToolEvent
from pallas.model.packed import Packed, packed_of

_ECHO = {"command": sys.executable, "args": ["echo_server.py"]}
_CALL = ("a__echo", {"text": "x"})


@pytest.fixture(autouse=True)
def _in_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class _Agent:
    """An agent of the project that answers turns."""

    def __init__(self, executor: FastAgentExecutor) -> None:
        self._executor = executor
        self.events: list[Event] = []

    async def run(self, text: str = "hi", history: Sequence[Message] = (), **params: Any) -> TurnResult:
        turn = ExecutorTurn(
            run_id="r", agent="one", text=text, history=history, params=Params.read(params, strict=True)
        )
        return await self._executor.run(turn, self.events.append)


@asynccontextmanager
async def _agent(
    root: Path,
    behind: Provider,
    model: str,
    *,
    servers: tuple[str, ...] = (),
    source: str | None = None,
    keys: dict[str, Any] | None = None,
    definition: Definition | None = None,
    **more: Any,
) -> AsyncIterator[_Agent]:
    settings = {**behind.config(model), "mcp": {"servers": dict.fromkeys(servers, _ECHO)}}
    write_project(
        root,
        {"one": source or agent_module("one", servers, **more)},
        keys={"one": keys or {}},
        config=settings,
    )
    project = load_project(root, {**os.environ})
    config = project.agents["one"]
    if definition is not None:
        config = replace(config, module=None, definition=definition)
    executor = FastAgentExecutor(project, config)
    with own_modules(root):
        await executor.load()
        await executor.start()
        try:
            yield _Agent(executor)
        finally:
            await executor.close(3.0)


_SCHEMA = {"name": "answer", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
_ALL: dict[str, Any] = {
    "temperature": 0.3,
    "top_p": 0.9,
    "top_k": 40,
    "max_tokens": 100,
    "stop": ["END"],
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "seed": 7,
    "response_format": {"type": "json_schema", "json_schema": _SCHEMA},
    "extra": {
        "metadata": {"user_id": "u1"},
        "repetition_penalty": 1.1,
        "user": "u2",
        "logit_bias": {"5": 1},
        "model": "another",
        "extra_headers": {"X": "y"},
    },
}


async def test_an_openai_compatible_endpoint_is_told_all_it_has_a_word_for(tmp_path: Path) -> None:
    # AG-10, AG-11
    async with provider() as behind, _agent(tmp_path, behind, "generic.qwen3") as one:
        await one.run(**_ALL)
    (asked,) = behind.asked
    told = {
        key: asked.body.get(key) for key in (*_ALL, "repetition_penalty", "user", "logit_bias", "metadata")
    }
    assert told == {
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": None,
        "max_tokens": 100,
        "stop": ["END"],
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "seed": 7,
        "response_format": _ALL["response_format"],
        "extra": None,
        "repetition_penalty": 1.1,
        "user": "u2",
        "logit_bias": {"5": 1},
        "metadata": None,
    }
    assert asked.body["model"] == "qwen3"
    assert "x" not in asked.headers


async def test_the_messages_api_is_told_all_it_has_a_word_for(tmp_path: Path) -> None:
    # AG-10, AG-11
    async with provider() as behind, _agent(tmp_path, behind, "anthropic.claude-haiku-4-5") as one:
        await one.run(**_ALL)
        await one.run(response_format={"type": "json_object"})
        await one.run(response_format={"type": "text"})
    first, second, third = behind.asked
    assert (first.body["temperature"], first.body["top_p"], first.body["top_k"]) == (0.3, 0.9, 40)
    assert (first.body["max_tokens"], first.body["stop_sequences"]) == (100, ["END"])
    assert first.body["metadata"] == {"user_id": "u1"}
    assert first.body["output_config"]["format"]["schema"]["properties"] == {"n": {"type": "integer"}}
    foreign = {
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "response_format",
        "repetition_penalty",
        "user",
    }
    assert not foreign & set(first.body)
    assert "JSON object" in second.system
    assert third.system == "You are one."
    assert "top_k" not in second.body


_FUNCTION = {"type": "function", "function": {"name": "a__echo"}}
_CHOICES: dict[str, tuple[Any, Any, Any, Any]] = {
    "generic.qwen3": ("auto", "none", "required", _FUNCTION),
    "anthropic.claude-haiku-4-5": (
        {"type": "auto"},
        {"type": "none"},
        {"type": "any"},
        {"type": "tool", "name": "a__echo"},
    ),
    "responses.gpt-4.1": ("auto", "none", "required", {"type": "function", "name": "a__echo"}),
}


@pytest.mark.parametrize("model", _CHOICES)
async def test_each_form_of_tool_choice_arrives_and_forces_one_call_of_a_turn(
    tmp_path: Path, model: str
) -> None:
    # AG-11
    async with (
        provider(in_turn(Reply(calls=[_CALL]), Reply("done"))) as behind,
        _agent(tmp_path, behind, model, servers=("a",)) as one,
    ):
        for choice in ("auto", "none", "required", {"type": "function", "function": {"name": "echo"}}):
            result = await one.run(tool_choice=choice)
            assert result.texts[-1] == "done"
        with pytest.raises(Fault, match=r"tool_choice: no tool nothing; there are a__") as refused:
            await one.run(tool_choice={"type": "function", "function": {"name": "nothing"}})
    assert (refused.value.type, refused.value.data["key"]) == (FaultType.PROTOCOL, "tool_choice")
    said = [asked.body.get("tool_choice") for asked in behind.asked]
    auto, none, required, named = _CHOICES[model]
    assert said == [auto, auto, none, none, required, auto, named, auto]
    if model.startswith("anthropic"):  # which refuses both at once, and wants it in all of a turn
        assert ["thinking" in asked.body for asked in behind.asked] == [True] * 4 + [False] * 4


async def test_the_responses_api_is_told_all_it_has_a_word_for(tmp_path: Path) -> None:
    # AG-10, AG-11
    async with provider() as behind, _agent(tmp_path, behind, "responses.gpt-4.1") as one:
        result = await one.run(**_ALL)
    assert result.texts == ("ok",)
    (asked,) = behind.asked
    assert (asked.body["temperature"], asked.body["top_p"]) == (0.3, 0.9)
    assert asked.body["max_output_tokens"] == 100
    assert asked.body["text"]["format"] == {"type": "json_schema", **_SCHEMA}
    assert asked.body["user"] == "u2"
    assert not {"top_k", "seed", "stop", "presence_penalty", "metadata", "response_format"} & set(asked.body)


_DEFAULTS = """
from fast_agent import FastAgent
from fast_agent.types import RequestParams

fast = FastAgent("one")
DEFAULTS = RequestParams(
    temperature=0.9, top_p=0.5, max_tokens=50, stop_sequences=["X"]
)


@fast.agent(name="one", instruction="You are one.", request_params=DEFAULTS)
async def main() -> None: ...
"""


@pytest.mark.parametrize("model", ["generic.qwen3", "anthropic.claude-3-5-haiku-latest", "responses.gpt-4.1"])
async def test_what_is_absent_is_inherited_from_the_code_and_null_takes_it_out(
    tmp_path: Path, model: str
) -> None:
    # AG-8
    cleared: dict[str, Any] = {"temperature": None, "top_p": None, "max_tokens": None, "stop": None}
    async with provider() as behind, _agent(tmp_path, behind, model, source=_DEFAULTS) as one:
        await one.run()
        await one.run(temperature=0.1)
        await one.run(**cleared)
        await one.run()
    inherited, over, without, again = (asked.body for asked in behind.asked)
    assert (inherited["temperature"], inherited["top_p"]) == (0.9, 0.5)
    assert (over["temperature"], over["top_p"]) == (0.1, 0.5)
    gone = {"temperature", "top_p", "stop", "stop_sequences", "max_output_tokens"}
    assert not {key for key in gone if without.get(key)}
    if model.startswith("anthropic"):  # it cannot do without: what the model can write
        assert without["max_tokens"] == 8192
    else:
        assert "max_tokens" not in without
    assert {**again, "prompt_cache_key": ""} == {**inherited, "prompt_cache_key": ""}


@pytest.mark.parametrize(
    ("model", "declared", "most"),
    [
        ("generic.qwen3", {"max_output_tokens": 1_000}, 1_000),
        ("generic.qwen3", {}, 99_999_999),
        ("openai.gpt-4o", {}, 16_384),
        ("openai.gpt-4o", {"vision": True}, 16_384),
        ("openai.gpt-4o", {"max_output_tokens": 2_000}, 2_000),
    ],
)
async def test_more_tokens_than_the_model_can_write_are_not_asked_for(
    tmp_path: Path, model: str, declared: dict[str, Any], most: int
) -> None:
    # AG-9
    keys = {"model_capabilities": declared} if declared else {}
    async with provider() as behind, _agent(tmp_path, behind, model, keys=keys) as one:
        await one.run(max_tokens=99_999_999)
        await one.run(max_tokens=7)
    assert [asked.body["max_tokens"] for asked in behind.asked] == [most, 7]


@pytest.mark.parametrize("model", ["generic.qwen3", "anthropic.claude-haiku-4-5"])
async def test_an_instruction_for_one_call_is_gone_with_it(tmp_path: Path, model: str) -> None:
    # AG-13: one instance answers all of them
    async with provider() as behind, _agent(tmp_path, behind, model, keys={"max_instances": 1}) as one:
        await one.run()
        await one.run(systemOverride="You are two.", systemAppend="Be brief.")
        await one.run(systemAppend="Be brief.")
        await one.run(systemOverride="")
        await one.run()
    assert [asked.system for asked in behind.asked] == [
        "You are one.",
        "You are two.\n\nBe brief.",
        "You are one.\n\nBe brief.",
        "",
        "You are one.",
    ]


async def test_prompts_of_the_project_stay_and_what_is_appended_follows_them(tmp_path: Path) -> None:
    # AG-13
    made = Definition("You are one.\n\nAlways {{rhyme}}.", prompts="Always {{rhyme}}.")
    async with (
        provider() as behind,
        _agent(tmp_path, behind, "generic.qwen3", definition=made) as one,
    ):
        await one.run(systemAppend="Be brief.")
        await one.run(systemOverride="You are two.", systemAppend="Be brief.")
        await one.run()
    assert [asked.system for asked in behind.asked] == [
        "You are one.\n\nAlways {{rhyme}}.\n\nBe brief.",
        "You are two.\n\nAlways {{rhyme}}.\n\nBe brief.",
        "You are one.\n\nAlways {{rhyme}}.",
    ]


async def test_hidden_tools_are_not_shown_and_a_call_of_one_is_refused(tmp_path: Path) -> None:
    # AG-12
    insists = in_turn(Reply(calls=[("b__echo", {"text": "no"}), ("a__echo", {"text": "yes"})]), Reply("done"))
    async with (
        provider(insists) as behind,
        _agent(tmp_path, behind, "generic.qwen3", servers=("a", "b")) as one,
    ):
        await one.run(tools_allowlist=["a__echo", "nowhere"])
        events = [each for each in one.events if isinstance(each, ToolEvent)]
        await one.run(toolsAllowlist=[])
        await one.run(tools_allowlist=["a__*"])
        with pytest.raises(
            Fault, match="echo is a tool of several servers; write a__echo or b__echo"
        ) as fault:
            await one.run(tools_allowlist=["echo"])
        await one.run()
    assert fault.value.data["key"] == "tools_allowlist"
    shown = [asked.tools for asked in behind.asked]
    of_a = ("a__echo", "a__boom", "a__slow")
    everything = (*of_a, "b__echo", "b__boom", "b__slow")
    assert shown == [("a__echo",)] * 2 + [()] * 2 + [of_a] * 2 + [everything] * 2
    results = [asked.results for asked in behind.asked[1::2]]
    refused = "b__echo was not called: it is not allowed in this turn (tools_allowlist); allowed: a__echo."
    assert results[0] == (refused, _said("yes"))
    assert results[1][0].endswith("(tools_allowlist); no tool is allowed.")
    assert results[3] == (_said("no"), _said("yes"))
    assert [(each.server, each.tool, each.phase) for each in events] == [
        ("a", "echo", "started"),
        ("a", "echo", "completed"),
        ("b", "echo", "started"),
        ("b", "echo", "failed"),
    ]


async def test_an_anthropic_agent_completes_a_loop_of_two_tools_also_from_a_thread_that_was_stored(
    tmp_path: Path,
) -> None:
    # AG-28: X22
    loop = in_turn(
        Reply("first", calls=[("a__echo", {"text": "x"})], reasoning="hm"),
        Reply(calls=[("b__echo", {"text": "y"})]),
        Reply("done"),
    )
    async with (
        provider(loop) as behind,
        _agent(tmp_path, behind, "anthropic.claude-haiku-4-5", servers=("a", "b")) as one,
    ):
        result = await one.run("go")
        assert result.texts == ("first", "done")
        stored = [
            Message(each.role, each.text, native=Packed(packed_of(each.native) or ""))
            for each in result.messages
        ]
        told = [
            Message(each.role, each.text, calls=each.calls, answers=each.answers) for each in result.messages
        ]
        behind.answer = lambda asked: Reply("more")
        await one.run("on", stored)
        await one.run("on", told)
    *_, last, from_json, from_words = behind.asked
    blocks = _blocks(last)
    assert [kind for kind, _ in blocks] == [
        "text", "thinking", "text", "tool_use", "tool_result", "tool_use", "tool_result"
    ]  # fmt: skip
    uses = [block for kind, block in blocks if kind == "tool_use"]
    results = [block for kind, block in blocks if kind == "tool_result"]
    assert [(use["name"], use["input"]) for use in uses] == [
        ("a__echo", {"text": "x"}),
        ("b__echo", {"text": "y"}),
    ]
    assert [each["tool_use_id"] for each in results] == [use["id"] for use in uses]
    assert last.results == (_said("x"), _said("y"))
    kinds = [kind for kind, _ in blocks]
    assert [kind for kind, _ in _blocks(from_json)] == [*kinds, "text", "text"]
    without_thinking = [kind for kind in kinds if kind != "thinking"]
    assert [kind for kind, _ in _blocks(from_words)] == [*without_thinking, "text", "text"]


def _said(text: str) -> str:
    """What the tool echo gives, as a model is shown it."""
    return f'{{"result":"echo:{text}"}}'


def _blocks(asked: Asked) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for message in asked.body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [(block["type"], block) for block in blocks]
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts what the process has open")
async def test_requests_of_an_anthropic_agent_leave_no_connection_open(tmp_path: Path) -> None:
    async with provider() as behind, _agent(tmp_path, behind, "anthropic.claude-haiku-4-5") as one:
        await one.run()
        before = _open()
        gc.disable()
        try:
            for _ in range(8):
                await one.run()
        finally:
            gc.enable()
        # The provider's end of a connection may take a moment to see that the other is gone.
        await until(lambda: _open() <= before)


def _open() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("model", ["generic.qwen3", "anthropic.claude-haiku-4-5"])
async def test_reasoning_is_told_apart_and_is_no_part_of_the_answer(tmp_path: Path, model: str) -> None:
    # AG-30
    thinks = Reply("the answer", reasoning="let me think")
    async with provider(lambda asked: thinks) as behind, _agent(tmp_path, behind, model) as one:
        result = await one.run()
    deltas = [each for each in one.events if isinstance(each, TextDelta)]
    assert "".join(each.text for each in deltas if each.reasoning) == "let me think"
    assert "".join(each.text for each in deltas if not each.reasoning) == "the answer"
    assert result.texts == ("the answer",)
    assert [message.text for message in result.messages] == ["hi", "the answer"]


@pytest.mark.slow
async def test_runs_at_once_never_see_each_others_parameters(tmp_path: Path) -> None:
    # AG-12, AG-13: six runs at a time on three instances, each with its own or with none
    def say(asked: Asked) -> Reply:
        return Reply("done") if asked.results else Reply(calls=[_CALL])

    async with (
        provider(say) as behind,
        _agent(tmp_path, behind, "generic.qwen3", servers=("a",), keys={"max_instances": 3}) as one,
    ):
        for start in range(0, 48, 6):
            await asyncio.gather(*(one.run(str(n), **_own(n)) for n in range(start, start + 6)))
    assert len(behind.asked) == 96
    for asked in behind.asked:
        n = int(asked.said)
        own = _own(n)
        for key in ("temperature", "seed", "stop", "max_tokens", "repetition_penalty"):
            assert asked.body.get(key) == {**own, **own.get("extra", {})}.get(key), (n, key)
        assert asked.system == ("You are one." if n % 3 else f"You are {n}.")
        assert asked.tools == (() if n % 4 == 1 else ("a__echo", "a__boom", "a__slow"))
        assert asked.body.get("tool_choice") == (None if n % 4 != 2 else "none")


def _own(n: int) -> dict[str, Any]:
    own: dict[str, Any] = {"seed": n, "temperature": n / 100} if n % 2 else {}
    if n % 3 == 0:
        own |= {"systemOverride": f"You are {n}.", "stop": [f"stop{n}"]}
    if n % 4 == 1:
        own |= {"tools_allowlist": [], "extra": {"repetition_penalty": 1 + n / 100}}
    if n % 4 == 2:
        own |= {"tool_choice": "none", "max_tokens": 10 + n}
    return own


_WITH_CHILD = """
from fast_agent import FastAgent

fast = FastAgent("one")


@fast.agent(name="child", instruction="You are child.", servers=["a"])
async def child() -> None: ...


@fast.agent(name="one", instruction="You are one.", agents=["child"], default=True)
async def main() -> None: ...
"""


async def test_sub_agents_of_a_definition_have_their_own_ways(tmp_path: Path) -> None:
    def say(asked: Asked) -> Reply:
        if asked.system == "You are child.":
            return Reply("mine")
        return Reply("done") if asked.results else Reply(calls=[(asked.tools[0], {"message": "help"})])

    async with (
        provider(say) as behind,
        _agent(tmp_path, behind, "generic.qwen3", servers=("a",), source=_WITH_CHILD) as one,
    ):
        await one.run(temperature=0.3, seed=7, systemAppend="Be brief.", tools_allowlist=["child"])
    of = {asked.system: asked for asked in behind.asked}
    assert set(of) == {"You are one.\n\nBe brief.", "You are child."}
    assert (of["You are one.\n\nBe brief."].body["seed"], of["You are child."].body.get("seed")) == (7, None)
    assert "temperature" not in of["You are child."].body
    assert of["You are child."].tools == ("a__echo", "a__boom", "a__slow")


async def test_the_thirteenth_round_is_not_asked_for_and_the_answer_says_so(tmp_path: Path) -> None:
    # AG-18
    numbers = count()

    def insists(asked: Asked) -> Reply:
        return Reply(calls=[("a__echo", {"text": str(next(numbers))})])

    async with (
        provider(insists) as behind,
        _agent(tmp_path, behind, "generic.qwen3", servers=("a",)) as one,
    ):
        result = await one.run()
    assert len(behind.asked) == 12
    assert "12 steps without coming to an end" in result.texts[-1]
    assert result.messages[-1].text == result.texts[-1]
