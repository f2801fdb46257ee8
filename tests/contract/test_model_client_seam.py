"""Where the libraries of providers take our HTTP clients: this fails when one of the places moves."""

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from fast_agent.llm.provider.anthropic.llm_anthropic import AnthropicLLM
from fast_agent.llm.provider.google.llm_google_native import GoogleNativeLLM
from fast_agent.llm.provider.openai import responses
from fast_agent.llm.provider.openai.llm_openai import OpenAILLM
from fast_agent.llm.provider.openai.responses import ResponsesLLM
from fast_agent.mcp.auth.context import request_bearer_token
from google import genai
from google.genai import models
from google.genai.types import HttpOptions
from openai import AsyncOpenAI
from openai import _base_client as openai_base

from pallas.executors.fastagent import model_client_seam
from pallas.executors.fastagent.model_client_seam import (
    CALL,
    CLIENTS,
    GOOGLE,
    GOOGLE_OPTIONS,
    MADE_OF,
    MAX_KEPT,
    TRANSPORT,
)
from pallas.executors.faults.fault_injection import FaultInjection
from pallas.executors.model_client.provider_connections import ClientKey, PooledClient, provider_connections
from pallas.executors.replay.replay import Replay, ReplayPlan
from pallas.model import Fault, RecordedRun, Recording
from pallas.model.fault_rules import FaultPlan, FaultRule


@pytest.mark.parametrize(
    ("kind", "method"), zip((OpenAILLM, ResponsesLLM, AnthropicLLM), CLIENTS, strict=True)
)
def test_clients_are_made_by_a_function_without_arguments(kind: Any, method: str) -> None:
    assert list(inspect.signature(getattr(kind, method)).parameters) == ["self"]
    assert f"self.{method}()" in inspect.getsource(inspect.getmodule(kind) or kind)


@pytest.mark.parametrize("library", [AsyncOpenAI, AsyncAnthropic])
async def test_each_client_gets_the_connections_of_its_address_and_credential(library: Any) -> None:
    made: list[Any] = []

    def client(key: str) -> Any:
        made.append(library(api_key=key, base_url="http://127.0.0.1:1", default_headers={"x-team": key}))
        return made[-1]

    keys = iter(("one", "one", "two"))
    llm = SimpleNamespace(_openai_client=lambda: client(next(keys)))
    model_client_seam.install(llm)
    model_client_seam.install(llm)
    first, again, other = (llm._openai_client() for _ in range(3))
    assert len(made) == 3
    assert isinstance(first._client, PooledClient)
    assert first._client is again._client is not other._client
    assert (first.max_retries, first.api_key, first.base_url) == (0, "one", made[0].base_url)
    assert first.timeout == made[0].timeout
    async with first:
        pass
    assert not again._client.is_closed
    assert "get_max_retries(self.max_retries)" in inspect.getsource(library.__mro__[1])


class _Model(OpenAILLM):
    """A model object as fast-agent makes it, with a key and an address that tests change."""

    key, address, headers = "one", "http://127.0.0.1:1/v1", None

    def __init__(self) -> None:
        pass

    def _api_key(self) -> str:
        return self.key

    def _base_url(self) -> str:
        return self.address

    def _default_headers(self) -> Any:
        return self.headers


async def test_a_client_of_openais_api_is_kept_for_its_key_address_and_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_client_seam, "SAME_FOR", 0.0)
    llm: Any = _Model()
    model_client_seam.install(llm)
    async with provider_connections().held():
        first = llm._openai_client()
        assert llm._openai_client() is first
        assert first._platform == openai_base.get_platform()
        made = {id(first)}
        for name, other in (("key", "two"), ("address", "http://127.0.0.1:2/v1"), ("headers", {"x": "1"})):
            setattr(llm, name, other)
            changed = llm._openai_client()
            assert llm._openai_client() is changed
            made.add(id(changed))
        assert len(made) == 4
        assert (changed.api_key, str(changed.base_url)) == ("two", "http://127.0.0.1:2/v1/")
        kept = [changed]
        for number in range(MAX_KEPT):
            llm.key = f"key-{number}"
            kept.append(llm._openai_client())
        llm.key = "two"
        assert llm._openai_client() is not changed, "the one unused for longest is dropped"
    assert llm._openai_client()._client is not changed._client, "its pool was closed"


async def test_a_client_with_the_token_of_a_caller_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_client_seam, "SAME_FOR", 0.0)
    llm: Any = _Model()
    model_client_seam.install(llm)
    async with provider_connections().held():
        token = request_bearer_token.set("callers-token")
        try:
            own = llm._openai_client()
            assert llm._openai_client() is own, "the key is not the caller's"
            llm.key = "callers-token"
            assert llm._openai_client() is not llm._openai_client()
            llm.key, llm.headers = "one", {"x-forward": "Bearer callers-token"}
            assert llm._openai_client() is not llm._openai_client()
        finally:
            request_bearer_token.reset(token)


async def test_key_and_address_are_looked_up_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_client_seam, "SAME_FOR", 1000.0)
    llm: Any = _Model()
    model_client_seam.install(llm)
    async with provider_connections().held():
        first = llm._openai_client()
        llm.key = "callers-token"
        assert llm._openai_client() is first
        token = request_bearer_token.set("callers-token")
        assert llm._openai_client().api_key == "callers-token"
        request_bearer_token.reset(token)
        assert llm._openai_client() is first


def test_clients_are_made_of_what_they_are_kept_for() -> None:
    made = inspect.getsource(OpenAILLM._openai_client)
    assert set(re.findall(r"self\.(\w+)\(", made)) == set(MADE_OF)
    assert "with_stream_idle_timeout(" in inspect.getsource(OpenAILLM._create_openai_streaming_response)


async def test_googles_library_takes_our_client_and_then_repeats_nothing() -> None:
    ours = provider_connections().client(ClientKey("google", ""))
    options = HttpOptions(httpx_async_client=ours)
    api: Any = genai.Client(api_key="x", http_options=options)._api_client
    assert api._async_httpx_client is ours
    assert not api._use_aiohttp()
    stream = models.AsyncModels.generate_content_stream
    assert list(inspect.signature(stream).parameters) == ["self", "model", "contents", "config"]
    for name in (GOOGLE, GOOGLE_OPTIONS):
        parameters = inspect.signature(getattr(GoogleNativeLLM, name)).parameters.values()
        assert all(each.kind is each.KEYWORD_ONLY for each in parameters if each.name != "self")
    assert "self._google_http_options(" in inspect.getsource(GoogleNativeLLM._initialize_google_client)
    assert "except TimeoutError:" in inspect.getsource(GoogleNativeLLM._stream_generate_content)


def test_models_of_the_responses_api_send_over_http_and_not_over_a_websocket() -> None:
    assert f"self.{TRANSPORT}" in inspect.getsource(ResponsesLLM._effective_transport)
    assert 'RESPONSES_TRANSPORT_AUTO: ResponsesTransport = "auto"' in inspect.getsource(responses)
    for before, after in (("auto", "sse"), ("sse", "sse"), ("websocket", "websocket")):
        llm = SimpleNamespace(**{TRANSPORT: before})
        model_client_seam.install(llm)
        assert getattr(llm, TRANSPORT) == after


@pytest.mark.parametrize("goes_on", [False, True])
async def test_a_replay_asks_no_model_over_a_websocket_and_none_of_bedrock(goes_on: bool) -> None:
    async def call() -> str:
        return "answer"

    def model(provider: str) -> Any:
        made = SimpleNamespace(
            **{TRANSPORT: "websocket", CALL: call},
            provider=SimpleNamespace(config_name=provider),
            model_name="m",
        )
        model_client_seam.install(made)
        return made

    replay = Replay(ReplayPlan(Recording("p", (RecordedRun("1", "desk", "why?"),)), goes_on=goes_on))
    replay.install()
    try:
        assert await getattr(asked := model("responses"), CALL)() == "answer"
        with pytest.raises(Fault, match="Amazon Bedrock are not asked in a replay"):
            await getattr(model("bedrock"), CALL)()
        assert replay.session().miss is not None
    finally:
        replay.uninstall()
    assert getattr(asked, TRANSPORT) == "sse"
    assert await getattr(model("bedrock"), CALL)() == "answer"


async def test_while_faults_are_injected_no_model_is_asked_over_a_websocket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def call() -> str:
        return "answer"

    def model(provider: str, name: str) -> Any:
        made = SimpleNamespace(
            **{TRANSPORT: "websocket", CALL: call},
            provider=SimpleNamespace(config_name=provider),
            model_name=name,
        )
        model_client_seam.install(made)
        return made

    before, during = model("responses", "gpt-5"), model("responses", "gpt-5")
    others = [model("bedrock", "nova"), model("bedrock", "other"), model("responses", "nova")]
    assert await getattr(before, CALL)() == "answer"
    injection = FaultInjection(FaultPlan((FaultRule("nov?", "429", at=(1,)),)))
    injection.install()
    try:
        for each in (during, *others, *others):
            assert await getattr(each, CALL)() == "answer"
    finally:
        injection.uninstall()
    assert getattr(before, TRANSPORT) == "websocket"
    assert getattr(during, TRANSPORT) == "sse"
    # Of a model of Amazon Bedrock that a rule fits it is said once that it gets none.
    (said,) = [each.getMessage() for each in caplog.records if "fault" in each.getMessage()]
    assert said.startswith(
        "no fault is injected into nova, though to: nov? fits it: models of Amazon Bedrock"
    )
