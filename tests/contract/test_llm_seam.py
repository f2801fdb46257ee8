"""Models of fast-agent that no agent holds: this fails when one of the places that we touch moves."""

import inspect
import subprocess
import sys
from typing import Any

import pytest
from fast_agent.config import Settings
from fast_agent.context import Context
from fast_agent.llm.fastagent_llm import FastAgentLLM
from fast_agent.llm.model_factory import ModelFactory

from pallas.executors.fastagent import completion_seam as seam
from pallas.executors.fastagent.model_client_seam import CLIENTS

PROVIDERS = ("openai", "generic", "anthropic", "responses", "xai", "groq", "deepseek", "openrouter")
# What a model of each is called that fast-agent knows; any name does for the others.
MODELS = {"xai": "grok-4.3", "deepseek": "deepseek-flash"}


def _model(provider: str, key: str | None = "key", url: str | None = "http://127.0.0.1:9/v1") -> Any:
    make, found = seam.maker_of(f"{provider}.{MODELS.get(provider, 'some-model')}")
    assert found == provider
    return seam.model(make, found, Settings(), key, url)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_model_knows_the_key_and_address_that_it_is_given_and_tries_once(provider: str) -> None:
    first, second = _model(provider), _model(provider, "other", "http://127.0.0.2:9/v1")
    assert (first._api_key(), first._base_url()) == ("key", "http://127.0.0.1:9/v1")
    assert (second._api_key(), second._base_url()) == ("other", "http://127.0.0.2:9/v1")
    assert first.retry_count == 0
    assert first._handle_retry_failure(ValueError("x")) is None
    assert first.usage_accumulator.turns == []
    assert any(name in vars(first) for name in CLIENTS)


def test_a_context_of_its_own_is_asked_before_the_process_s() -> None:
    settings = seam.settings_with({}, "openai", {"api_key": "mine"}, elsewhere=False)
    make, found = seam.maker_of("openai.some-model")
    assert seam.model(make, found, settings, None, None)._api_key() == "mine"
    assert "self._context is not None" in inspect.getsource(FastAgentLLM.context.fget)  # type: ignore[attr-defined]
    assert "config" in Context.model_fields


def test_a_backend_elsewhere_is_told_nothing_of_the_projects_section() -> None:
    project = {"openai": {"api_key": "theirs", "default_headers": {"x-secret": "theirs"}}, "mcp": {}}
    there = seam.settings_with(project, "openai", {"base_url": "http://x/v1"}, elsewhere=True)
    assert there.openai is not None
    assert (there.openai.api_key, there.openai.default_headers) == (None, None)
    here = seam.settings_with(project, "openai", {"api_key": "mine"}, elsewhere=False)
    assert here.openai is not None
    assert (here.openai.api_key, here.openai.default_headers) == ("mine", {"x-secret": "theirs"})
    assert project["openai"]["api_key"] == "theirs"


def test_failures_are_raised_where_nothing_is_made_of_them() -> None:
    source = inspect.getsource(FastAgentLLM._handle_exhausted_retries)
    assert "if handled is not None" in source
    assert "raise last_error" in source
    assert list(inspect.signature(FastAgentLLM.generate).parameters) == [
        "self",
        "messages",
        "request_params",
        "tools",
    ]


def test_a_factory_takes_the_options_that_we_give() -> None:
    source = inspect.getsource(ModelFactory.create_factory)
    for place in ("**kwargs", 'if "base_url" in kwargs:', 'getattr(agent, "instruction", None)'):
        assert place in source


@pytest.mark.slow
def test_a_service_is_made_without_fast_agent() -> None:
    code = (
        "import sys, pallas.llm, pallas.llm.llm_service, pallas.surfaces.metrics;"
        "pallas.llm.llm_service.LlmService(lambda: None);"
        "sys.exit(any(name.partition('.')[0] in ('fast_agent', 'openai') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
