"""Where fast-agent finds providers and their keys: what the checks of providers rely on."""

from importlib import import_module

import pytest
from fast_agent.core.exceptions import ProviderKeyError
from fast_agent.llm.provider.anthropic import vertex_config
from fast_agent.llm.provider.copilot import oauth as copilot
from fast_agent.llm.provider.openai import llm_azure
from fast_agent.llm.provider_key_manager import ProviderKeyManager

from pallas.config.upstream import PROVIDERS as NAMES
from pallas.health import cloud_account
from pallas.health.provider_endpoint import AZURE_API_VERSION, PROVIDERS

_OPENAI = "fast_agent.llm.provider.openai"
ADDRESSES = {
    "responses": (f"{_OPENAI}.responses", "DEFAULT_RESPONSES_BASE_URL"),
    "generic": (f"{_OPENAI}.llm_generic", "DEFAULT_OLLAMA_BASE_URL"),
    "groq": (f"{_OPENAI}.llm_groq", "GROQ_BASE_URL"),
    "deepseek": (f"{_OPENAI}.llm_deepseek", "DEEPSEEK_BASE_URL"),
    "moonshot": (f"{_OPENAI}.llm_moonshot", "MOONSHOT_BASE_URL"),
    "openrouter": (f"{_OPENAI}.llm_openrouter", "DEFAULT_OPENROUTER_BASE_URL"),
    "aliyun": (f"{_OPENAI}.llm_aliyun", "ALIYUN_BASE_URL"),
    "zai": (f"{_OPENAI}.llm_zai", "ZAI_BASE_URL"),
    "hf": (f"{_OPENAI}.llm_huggingface", "HUGGINGFACE_BASE_URL"),
    "xai": (f"{_OPENAI}.xai_responses", "XAI_BASE_URL"),
    "metaai": (f"{_OPENAI}.metaai_responses", "META_AI_BASE_URL"),
    "googleoai": (f"{_OPENAI}.llm_google_oai", "GOOGLE_BASE_URL"),
    "openresponses": (f"{_OPENAI}.openresponses", "DEFAULT_OPENRESPONSES_BASE_URL"),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_a_provider_is_where_fast_agent_finds_it(name: str) -> None:
    module, constant = ADDRESSES[name]
    assert getattr(import_module(module), constant).rstrip("/") == PROVIDERS[name].url


def test_keys_are_where_fast_agent_finds_them() -> None:
    assert PROVIDERS.keys() <= NAMES
    for name, api in PROVIDERS.items():
        assert ProviderKeyManager.get_env_key_name(name) == api.variable
        settings = {name: {"base_url": "x"}, api.also: {"api_key": "theirs"}}
        found = ProviderKeyManager.get_config_file_key(
            name, {api.also: settings[api.also]} if api.also else settings
        )
        assert (found == "theirs") is bool(api.also)
    for name in ("generic", "hf", "xai"):
        assert not PROVIDERS[name].needs_key
    assert ProviderKeyManager._provider_specific_fallback_key("generic") == PROVIDERS["generic"].key


def test_each_provider_is_checked() -> None:
    assert PROVIDERS.keys() | cloud_account.ALWAYS | {"fast-agent"} == NAMES


def test_azure_is_asked_for_the_version_that_fast_agent_uses() -> None:
    assert AZURE_API_VERSION == llm_azure.DEFAULT_AZURE_API_VERSION


def test_a_missing_key_of_a_gateway_ends_a_call_in_fast_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("azure", "googleoai", "tensorzero"):
        monkeypatch.delenv(PROVIDERS[name].variable, raising=False)
        with pytest.raises(ProviderKeyError):
            ProviderKeyManager.get_api_key(name, {})


def test_accounts_are_where_fast_agent_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vertex_config._VERTEX_PROJECT_ENV_VARS == cloud_account._GOOGLE_PROJECT
    assert vertex_config._CLOUD_PLATFORM_SCOPE == cloud_account._GOOGLE_SCOPE
    assert ProviderKeyManager.get_env_key_name("codexresponses") == "CODEX_API_KEY"
    assert copilot.COPILOT_PROVIDER_ID == "copilot"
    monkeypatch.setenv("COPILOT_GITHUB_TOKEN", "any")
    assert copilot.get_copilot_access_token() == "any"
