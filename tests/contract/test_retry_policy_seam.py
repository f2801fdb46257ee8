"""Where fast-agent and the providers' libraries repeat requests: this fails when one of the places moves."""

import inspect
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from fast_agent.llm.fastagent_llm import FastAgentLLM
from fast_agent.llm.provider.anthropic.llm_anthropic import AnthropicLLM
from fast_agent.llm.provider.google.llm_google_native import GoogleNativeLLM
from fast_agent.llm.provider.openai.llm_openai import OpenAILLM
from fast_agent.llm.provider.openai.responses import ResponsesLLM
from google import genai
from google.genai import models
from openai import AsyncOpenAI

from pallas.executors.fastagent.retry_policy import CLIENTS


def test_fast_agent_asks_these_functions_of_the_model_whether_and_when_it_repeats() -> None:
    source = inspect.getsource(FastAgentLLM._execute_with_retry)
    for place in (
        "if self._is_fatal_retry_error(e):",
        "if self._is_request_too_large(e):",
        "await self._wait_before_retry(e, attempt=attempt, retries=retries)",
    ):
        assert place in source


@pytest.mark.parametrize(
    ("kind", "method"), zip((OpenAILLM, ResponsesLLM, AnthropicLLM), CLIENTS, strict=True)
)
def test_clients_are_made_by_a_function_without_arguments(kind: Any, method: str) -> None:
    assert list(inspect.signature(getattr(kind, method)).parameters) == ["self"]
    assert f"self.{method}()" in inspect.getsource(inspect.getmodule(kind) or kind)


def test_clients_look_at_how_often_they_try_when_they_ask() -> None:
    for client in (AsyncOpenAI(api_key="x"), AsyncAnthropic(api_key="x")):
        client.max_retries = 0
        assert client.max_retries == 0
        assert "get_max_retries(self.max_retries)" in inspect.getsource(type(client).__mro__[1])


def test_googles_library_repeats_over_aiohttp_alone() -> None:
    api: Any = genai.Client(api_key="x")._api_client
    assert api._use_aiohttp()
    source = inspect.getsource(type(api)._async_request_once)
    assert source.count("if self._use_aiohttp():") == 2
    stream = models.AsyncModels.generate_content_stream
    assert list(inspect.signature(stream).parameters) == ["self", "model", "contents", "config"]
    made = inspect.signature(GoogleNativeLLM._initialize_google_client).parameters.values()
    assert all(each.kind is each.KEYWORD_ONLY for each in made if each.name != "self")
    assert "except TimeoutError:" in inspect.getsource(GoogleNativeLLM._stream_generate_content)
