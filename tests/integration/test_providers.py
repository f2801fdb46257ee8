"""An agent with several providers: the one that is meant answers each turn, with one thread for all."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from support.live import agent_module, write_project
from support.ports import free_ports
from support.providers import Asked, Kind, Provider, Reply, in_turn, provider

from pallas.config import load_project
from pallas.executors import ExecutorTurn, TurnResult
from pallas.executors.base import Executor
from pallas.executors.fastagent.fastagent_executor import FastAgentExecutor
from pallas.executors.process.process_executor import ProcessExecutor
from pallas.model import Event, Fault, FaultType, Image, Message, Params, Rerouted, TextDelta

pytestmark = pytest.mark.usefixtures("forked_children")

_ECHO = {"command": sys.executable, "args": ["echo_server.py"]}
_PNG = Image(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
    "image/png",
)
_THREE: Mapping[str, Any] = {
    "providers": [
        {
            "id": "local",
            "models": ["generic.qwen3", "generic.qwen3-big"],
            "params": {"temperature": 0.1, "seed": 1, "extra": {"min_p": 0.1, "top_a": 1}},
        },
        {"id": "claude", "models": ["anthropic.claude-haiku-4-5"]},
        {"id": "gpt", "models": ["responses.gpt-4.1"]},
    ]
}  # fmt: skip


@pytest.fixture(autouse=True)
def _in_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@asynccontextmanager
async def _moody() -> AsyncIterator[tuple[Provider, list[Any]]]:
    """A provider, and a list: for each entry a request fails, with that status or as that function does."""
    moods: list[Any] = []

    class Moody(Provider):
        async def _hear(self, request: Request, kind: Kind) -> tuple[Asked, Reply] | Response:
            if not moods:
                return await super()._hear(request, kind)
            mood = moods.pop(0)
            self.asked.append(Asked(kind, await request.json(), {}))
            error = {"error": {"message": "not today", "type": "trouble"}}
            return mood() if callable(mood) else JSONResponse(error, mood)

    async with provider() as running:
        running.__class__ = Moody
        yield running, moods


class _Agent:
    """An agent of the project that answers turns."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.events: list[Event] = []
        self.history: list[Message] = []

    async def run(
        self, text: str = "hi", provider: str = "", history: Sequence[Message] = (), **given: Any
    ) -> TurnResult:
        turn = ExecutorTurn(
            run_id="r",
            agent="one",
            text=text,
            history=history,
            provider=provider,
            images=given.pop("images", ()),
            params=Params.read_runtime(given),
        )
        return await self.executor.run(turn, self.events.append)

    async def with_params(self, called: Params, own: Params) -> TurnResult:
        """A turn with a caller's parameters over the agent's."""
        turn = ExecutorTurn(run_id="r", agent="one", text="hi", params=called.over(own))
        return await self.executor.run(turn, self.events.append)

    async def say(self, text: str, provider: str = "") -> TurnResult:
        """A turn of the one thread that this agent has."""
        result = await self.run(text, provider, tuple(self.history))
        self.history += result.messages
        return result

    @property
    def rerouted(self) -> list[tuple[str, str]]:
        return [(each.asked, each.to) for each in self.events if isinstance(each, Rerouted)]


def _blocks(generic: str, others: str) -> dict[str, Any]:
    """Where each of fast-agent's providers is."""
    return {
        "generic": {"api_key": "none", "base_url": f"{generic}/v1"},
        "anthropic": {"api_key": "none", "base_url": others},
        "responses": {"api_key": "none", "base_url": f"{others}/v1"},
    }


@asynccontextmanager
async def _agent(
    root: Path,
    keys: Mapping[str, Any],
    blocks: Mapping[str, Any],
    *,
    servers: tuple[str, ...] = (),
    process: bool = False,
    source: str | None = None,
    **more: Any,
) -> AsyncIterator[_Agent]:
    config = {"default_model": None, "mcp": {"servers": dict.fromkeys(servers, _ECHO)}, "llm_retries": 0}
    write_project(
        root,
        {"one": source or agent_module("one", servers, **more)},
        keys={"one": keys},
        config={**{key: value for key, value in config.items() if value is not None}, **blocks},
    )
    text = (root / "fastagent.config.yaml").read_text().replace("default_model: passthrough\n", "")
    (root / "fastagent.config.yaml").write_text(text)
    project = load_project(root, {})
    kind = ProcessExecutor if process else FastAgentExecutor
    executor = kind(project, project.agents["one"])
    await executor.load()
    await executor.start()
    try:
        yield _Agent(executor)
    finally:
        await executor.close(3.0)


def _model(asked: Asked) -> str:
    return str(asked.body["model"])


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
async def test_each_turn_is_answered_by_the_provider_that_is_chosen(tmp_path: Path, process: bool) -> None:
    # DR-24
    async with provider() as near, provider() as far:
        blocks = _blocks(near.base, far.base)
        async with _agent(tmp_path, _THREE, blocks, process=process) as one:
            first = await one.run()
            second = await one.run(provider="claude")
            third = await one.run(provider="gpt")
            again = await one.run()
            with pytest.raises(Fault) as raised:
                await one.run(provider="nobody")
            known = one.executor.info.providers_known
    assert [each.backend for each in (first, second, third, again)] == ["local", "claude", "gpt", "local"]
    assert [_model(each) for each in near.asked] == ["qwen3", "qwen3"]
    assert [(each.kind, _model(each)) for each in far.asked] == [
        ("anthropic", "claude-haiku-4-5"),
        ("responses", "gpt-4.1"),
    ]
    assert raised.value.type is FaultType.CONFIG
    assert raised.value.message == 'Provider "nobody" is not registered in the ProviderRegistry'
    assert known is not None
    assert [each.id for each in known] == ["local", "claude", "gpt"]


async def test_a_thread_goes_on_with_another_provider(tmp_path: Path) -> None:
    # DR-24
    answer = in_turn(Reply(calls=[("a__echo", {"text": "x"})], reasoning="Hm."), Reply("done"))
    async with (
        provider(answer) as near,
        provider(answer) as far,
        _agent(tmp_path, _THREE, _blocks(near.base, far.base), servers=("a",)) as one,
    ):
        backends = [
            (await one.say(f"say {number}", chosen)).backend
            for number, chosen in enumerate(("gpt", "claude", "local", "gpt"))
        ]
    assert backends == ["gpt", "claude", "local", "gpt"]
    last = [each.asked[-1] for each in (near, far)]
    assert _said(last[0]) == ["say 0", "say 1", "say 2"]
    assert _said(last[1]) == ["say 0", "say 1", "say 2", "say 3"]
    # Each is shown the agent's tools, and what the others' calls came to.
    assert {each.tools for each in (*near.asked, *far.asked)} == {("a__echo", "a__boom", "a__slow")}
    assert {each.system for each in (*near.asked, *far.asked)} == {"You are one."}
    assert str(last[1].body["input"]).count("echo:x") == 4
    assert str(far.asked[3].body["messages"]).count("echo:x") == 2


async def test_turns_at_the_same_time_have_each_their_own_provider(tmp_path: Path) -> None:
    # DR-24
    order = ["", "claude", "gpt", "local", "claude", "gpt"] * 3
    async with (
        provider(_echoing) as near,
        provider(_echoing) as far,
        _agent(tmp_path, {**_THREE, "max_instances": 4}, _blocks(near.base, far.base)) as one,
    ):
        results = await asyncio.gather(*(one.run(f"{n}", chosen) for n, chosen in enumerate(order)))
        alone = await one.run("at last")
    assert [each.backend for each in results] == [each or "local" for each in order]
    assert [each.texts for each in results] == [(f"{number}",) for number in range(len(order))]
    assert alone.backend == "local"
    kinds = {"claude": "anthropic", "gpt": "responses"}
    assert {each.said: each.kind for each in far.asked} == {
        str(number): kinds[chosen] for number, chosen in enumerate(order) if chosen in kinds
    }


async def test_parameters_of_the_provider_are_below_the_agents_and_the_callers(tmp_path: Path) -> None:
    # DR-25, C15
    keys = {**_THREE, "params": {"temperature": 0.5, "extra": {"top_a": 2}}}
    async with (
        provider() as near,
        provider() as far,
        _agent(tmp_path, keys, _blocks(near.base, far.base)) as one,
    ):
        # The kernel lays the agent's own below the caller's; here it is done by hand.
        own = Params.read({"temperature": 0.5, "extra": {"top_a": 2}}, strict=True)
        await one.with_params(Params(), own)
        await one.with_params(Params.read_runtime({"temperature": 1}), own)
        cleared = {"temperature": None, "providerSpecific": {"min_p": None, "seed": None, "x": 3}}
        await one.with_params(Params.read_runtime(cleared), own)
        await one.run(provider="claude")
    bodies = [each.body for each in near.asked]
    assert [body.get("temperature") for body in bodies] == [0.5, 1, None]
    assert [body.get("seed") for body in bodies] == [1, 1, None]
    assert [(body.get("min_p"), body.get("top_a")) for body in bodies] == [(0.1, 2), (0.1, 2), (None, 2)]
    assert "temperature" not in far.asked[0].body  # those of another provider


async def test_another_model_of_the_provider_can_be_asked_for(tmp_path: Path) -> None:
    # DR-25
    async with (
        provider() as near,
        provider() as far,
        _agent(tmp_path, _THREE, _blocks(near.base, far.base)) as one,
    ):
        await one.run(model="generic.qwen3-big")
        await one.run(model="qwen3-big")
        await one.run()
        with pytest.raises(Fault, match="claude has no qwen3-big; known: anthropic") as raised:
            await one.run(provider="claude", model="qwen3-big")
    assert [_model(each) for each in near.asked] == ["qwen3-big", "qwen3-big", "qwen3"]
    assert not far.asked
    assert (raised.value.type, raised.value.data["key"]) == (FaultType.PROTOCOL, "model")


async def test_an_agent_without_providers_has_its_one_model(tmp_path: Path) -> None:
    # DR-23
    async with (
        provider() as near,
        _agent(tmp_path, {}, _blocks(near.base, near.base), model="generic.qwen3") as one,
    ):
        await one.run(model="qwen3")
        await one.run(model="generic.qwen3")
        with pytest.raises(Fault, match="answers only with qwen3"):
            await one.run(model="openai.qwen3")
        with pytest.raises(Fault, match='Provider "x" is not registered in the ProviderRegistry'):
            await one.run(provider="x")
        assert one.executor.info.providers_known is None
    assert [_model(each) for each in near.asked] == ["qwen3", "qwen3"]


async def test_discovery_has_what_is_declared_and_what_is_known_of_the_models(tmp_path: Path) -> None:
    # DR-23
    declared = {"streaming": True, "jsonMode": False}
    keys = {
        "providers": [
            {"id": "a", "models": ["generic.qwen3"], "displayName": "Ours", "description": "Near"},
            {"id": "b", "models": ["anthropic.claude-haiku-4-5?reasoning=low"]},
            {"id": "c", "models": ["responses.gpt-4.1"], "capabilities": declared},
            {"id": "d", "models": ["openai.text-embedding-3-small"], "kind": "embedding"},
        ],
        "default_provider": "b",
    }
    async with provider() as near, _agent(tmp_path, keys, _blocks(near.base, near.base)) as one:
        known = {each.id: each for each in one.executor.info.providers_known or ()}
        info = one.executor.info
        with pytest.raises(Fault, match='Provider "d" is of kind embedding and cannot answer'):
            await one.run(provider="d")
    assert list(known) == ["b", "a", "c", "d"]
    assert (known["a"].kind, known["a"].display_name, known["a"].description) == ("llm", "Ours", "Near")
    assert known["a"].capabilities == {}  # nothing is declared, and nobody knows it
    assert known["b"].models == ("anthropic.claude-haiku-4-5",)
    assert known["b"].capabilities == {"vision": True, "jsonMode": True}
    assert known["c"].capabilities == declared
    assert known["d"].kind == "embedding"
    assert (info.model, info.vision, info.providers) == (
        "claude-haiku-4-5", True, ("anthropic", "generic", "responses"),
    )  # fmt: skip


async def test_pictures_go_to_the_providers_that_see(tmp_path: Path) -> None:
    # DR-25, PR-17
    async with (
        provider() as near,
        provider() as far,
        _agent(tmp_path, _THREE, _blocks(near.base, far.base)) as one,
    ):
        await one.run(provider="gpt", images=(_PNG,), detail="low")
        with pytest.raises(Fault, match="the model qwen3 has no vision"):
            await one.run(images=(_PNG,))
    blocks = far.asked[0].body["input"][-1]["content"]
    assert [each["detail"] for each in blocks if each["type"] == "input_image"] == ["low"]
    assert "detail" not in far.asked[0].body
    assert not near.asked


@pytest.mark.parametrize("chosen", ["local", "claude", "gpt"])
async def test_a_failure_says_what_it_was_and_whose(tmp_path: Path, chosen: str) -> None:
    # DR-22, HC-27
    expected = {
        401: (FaultType.AUTH, False),
        429: (FaultType.UPSTREAM, True),
        503: (FaultType.UPSTREAM, True),
        400: (FaultType.UPSTREAM, False),
        404: (FaultType.UPSTREAM, False),
    }
    async with (
        _moody() as (far, moods),
        _agent(tmp_path, _THREE, _blocks(far.base, far.base)) as one,
    ):
        for status, (kind, retryable) in expected.items():
            moods.extend([status] * 3)  # its own client library tries again
            with pytest.raises(Fault) as raised:
                await one.run(provider=chosen)
            moods.clear()
            fault = raised.value
            assert (fault.type, fault.retryable) == (kind, retryable), status
            assert fault.data == {"providerId": chosen}
            assert "HTTP" in fault.message
        assert (await one.run(provider=chosen)).backend == chosen
    assert not one.rerouted


async def test_a_provider_that_is_away_or_says_nothing_is_told_apart(tmp_path: Path) -> None:
    # DR-22
    (nobody,) = free_ports(1)
    away = f"http://127.0.0.1:{nobody}"
    silent = await asyncio.start_server(_hear_only, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    blocks = _blocks(f"http://127.0.0.1:{port}", away)
    keys = {
        "providers": [
            {"id": "slow", "models": ["generic.qwen3?streaming_timeout=1"]},
            *_THREE["providers"][1:],
        ]
    }
    async with silent, _agent(tmp_path, keys, blocks) as one:
        for chosen in ("claude", "gpt"):
            with pytest.raises(Fault, match="cannot be reached") as raised:
                await one.run(provider=chosen)
            assert raised.value.type is FaultType.TRANSPORT
            assert raised.value.data == {"providerId": chosen}
        with pytest.raises(Fault) as raised:
            await one.run()
        assert (raised.value.type, raised.value.retryable) == (FaultType.TIMEOUT, True)
        assert raised.value.data == {"providerId": "slow"}


def _with_failover(*ids: str) -> dict[str, Any]:
    return {"providers": [{**each, "failover": each["id"] in ids} for each in _THREE["providers"]]}


@pytest.mark.slow
@pytest.mark.parametrize("process", [False, True])
async def test_another_one_stands_in_at_once_and_everybody_is_told(
    tmp_path: Path, process: bool, caplog: pytest.LogCaptureFixture
) -> None:
    # DR-32, C13, HC-27
    async with _moody() as (near, moods), provider() as far:
        keys, blocks = _with_failover("claude"), _blocks(near.base, far.base)
        async with _agent(tmp_path, keys, blocks, process=process) as one:
            moods.append(503)
            with caplog.at_level(logging.WARNING):
                first = await one.say("hi")
            asked_once = len(near.asked)
            # It failed a moment ago: the other one is asked first, and that is told as well.
            second = await one.say("and now")
            chosen = await one.run(provider="claude")
    assert (first.backend, first.texts) == ("claude", ("ok",))
    assert asked_once == 1  # nobody waited to ask it again
    assert [each.role for each in first.messages] == ["user", "assistant"]
    assert (second.backend, len(near.asked), chosen.backend) == ("claude", 1, "claude")
    assert one.rerouted == [("local", "claude"), ("local", "claude")]
    why = [each.why for each in one.events if isinstance(each, Rerouted)]
    assert "HTTP 503" in why[0]
    assert why[1].startswith("it failed a moment ago: ")
    assert _said(far.asked[1]) == ["hi", "and now"]
    if not process:
        assert "provider claude answers in place of local" in caplog.text


async def test_one_after_the_other_is_tried_and_the_last_fault_names_all(tmp_path: Path) -> None:
    # DR-22, DR-32, HC-27
    (nobody,) = free_ports(1)
    async with _moody() as (far, moods):
        blocks = _blocks(f"http://127.0.0.1:{nobody}", far.base)
        async with _agent(tmp_path, _with_failover("claude", "gpt"), blocks) as one:
            moods.extend([429, 529, 529, 529])
            with pytest.raises(Fault) as raised:
                await one.run()
            moods.clear()
            first = list(one.rerouted)
            # All of them failed: the one that is meant goes first, as ever.
            result = await one.run()
    assert first == [("local", "claude"), ("local", "gpt")]
    assert (raised.value.type, raised.value.retryable) == (FaultType.UPSTREAM, True)
    assert raised.value.data == {"providerId": "gpt", "tried": ["local", "claude", "gpt"]}
    assert "local: the model's provider cannot be reached" in raised.value.message
    assert "HTTP 429" in raised.value.message
    assert [each.kind for each in far.asked[:2]] == ["anthropic", "responses"]
    assert result.backend == "claude"


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_what_another_provider_would_not_mend_is_not_asked_of_it(tmp_path: Path, status: int) -> None:
    # HC-27
    async with (
        _moody() as (near, moods),
        provider() as far,
        _agent(tmp_path, _with_failover("claude"), _blocks(near.base, far.base)) as one,
    ):
        moods.append(status)
        with pytest.raises(Fault) as raised:
            await one.run()
    assert raised.value.data == {"providerId": "local"}
    assert not far.asked
    assert not one.rerouted


@pytest.mark.parametrize("after", ["text", "call"])
async def test_nobody_stands_in_once_there_was_text_or_a_call(tmp_path: Path, after: str) -> None:
    # C13, DR-32
    async with _moody() as (near, moods), provider() as far:
        near.answer = in_turn(Reply(calls=[("a__echo", {"text": "x"})]), Reply("done"))
        keys, blocks = _with_failover("claude"), _blocks(near.base, far.base)
        async with _agent(tmp_path, keys, blocks, servers=("a",)) as one:
            if after == "text":
                moods.append(_broken_off)
            else:
                near.answer = _then(near.answer, lambda: moods.append(503))
            with pytest.raises(Fault) as raised:
                await one.run()
    assert raised.value.data["providerId"] == "local"
    assert not far.asked
    assert not one.rerouted
    assert after != "text" or any(isinstance(each, TextDelta) for each in one.events)


async def test_a_sub_agent_keeps_its_own_model(tmp_path: Path) -> None:
    # DR-24
    source = (
        "from fast_agent import FastAgent\n"
        'fast = FastAgent("one")\n'
        '@fast.agent(name="helper", instruction="You help.", model="generic.helper")\n'
        "async def helper() -> None: ...\n"
        '@fast.agent(name="one", instruction="You are one.", agents=["helper"], default=True)\n'
        "async def main() -> None: ...\n"
    )
    answer = in_turn(Reply(calls=[("agent__helper", {"message": "please"})]), Reply("done"))
    async with (
        provider() as near,
        provider(answer) as far,
        _agent(tmp_path, _THREE, _blocks(near.base, far.base), source=source) as one,
    ):
        result = await one.run(provider="claude")
    assert (result.backend, result.texts[-1]) == ("claude", "done")
    assert [_model(each) for each in near.asked] == ["helper"]


def _said(asked: Asked) -> list[str]:
    """The user's own words in a request."""
    found = []
    for message in asked.body.get("input") or asked.body["messages"]:
        if message.get("role") != "user":
            continue
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [each["text"] for each in blocks if each.get("type") in ("text", "input_text")]
    return found


async def _hear_only(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)


def _echoing(asked: Asked) -> Reply:
    return Reply(asked.said)


def _then(answer: Any, act: Any) -> Any:
    def answered(asked: Asked) -> Reply:
        reply: Reply = answer(asked)
        act()
        return reply

    return answered


def _broken_off() -> Response:
    """A word, and then an error in the middle of the stream."""
    chunk = '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":'
    delta = f'data: {chunk}[{{"index":0,"delta":{{"role":"assistant","content":"Well"}}}}]}}\n\n'
    error = 'data: {"error":{"message":"overloaded","type":"server_error","code":503}}\n\n'
    return StreamingResponse(iter([delta, error]), media_type="text/event-stream")
