"""Where the libraries of providers take our HTTP clients: this fails when one of the places moves."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from fast_agent.llm.provider.anthropic.llm_anthropic import AnthropicLLM
from fast_agent.llm.provider.google.llm_google_native import GoogleNativeLLM
from fast_agent.llm.provider.openai.llm_openai import OpenAILLM
from fast_agent.llm.provider.openai.responses import ResponsesLLM
from google import genai
from google.genai import models
from google.genai.types import HttpOptions
from openai import AsyncOpenAI

from pallas.executors.fastagent import model_client_seam
from pallas.executors.fastagent.model_client_seam import CLIENTS, GOOGLE, GOOGLE_OPTIONS
from pallas.executors.model_client.provider_connections import ClientKey, PooledClient, provider_connections


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
