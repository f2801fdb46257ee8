"""Where an agent is given another model for a turn: this fails when one of the places moves."""

import inspect
from dataclasses import fields

from fast_agent.agents.llm_decorator import LlmDecorator
from fast_agent.core import harness
from fast_agent.core.fastagent import FastAgent, RunRuntime
from fast_agent.llm.fastagent_llm import FastAgentLLM
from fast_agent.llm.model_factory import ModelFactory
from fast_agent.llm.provider_key_manager import ProviderKeyManager

from pallas.config.upstream import PROVIDERS, key_variable


def test_a_harness_makes_its_agents_models_by_a_function_of_its_own() -> None:
    assert "model_factory_func" in {each.name for each in fields(RunRuntime)}
    assert "self._runtime = self._lifecycle_state.runtime" in inspect.getsource(harness.AgentHarness)
    made = inspect.signature(FastAgent._build_model_factory_func).parameters
    assert list(made) == ["self", "cli_model_override", "model_endpoint_override"]
    # It is called when an instance is made, not when the harness is entered.
    assert "model_factory_func" not in inspect.getsource(harness)


def test_an_agent_keeps_its_model_where_we_put_ours() -> None:
    source = inspect.getsource(LlmDecorator)
    for place in ("self._llm = llm", "self._llm_factory_ref = llm_factory", "self._llm_attach_kwargs = "):
        assert place in source
    attach = inspect.signature(LlmDecorator.attach_llm).parameters
    assert list(attach) == ["self", "llm_factory", "model", "request_params", "additional_kwargs"]
    assert list(inspect.signature(LlmDecorator._on_llm_attached).parameters) == ["self", "llm"]


def test_a_model_tells_of_its_last_failure_and_counts_its_tries() -> None:
    assert list(inspect.signature(FastAgentLLM._handle_retry_failure).parameters) == ["self", "error"]
    assert "handler = on_final_error or self._handle_retry_failure" in inspect.getsource(FastAgentLLM)
    assert "retries = max(0, int(self.retry_count))" in inspect.getsource(FastAgentLLM._execute_with_retry)


def test_the_providers_that_a_model_may_name_are_those_of_fast_agent() -> None:
    for name in PROVIDERS - {"copilot", "fast-agent"}:
        assert ModelFactory.parse_model_string(f"{name}.some-model").model_name == "some-model"


def test_their_keys_come_from_the_variables_that_fast_agent_reads() -> None:
    for name in PROVIDERS:
        assert ProviderKeyManager.get_env_key_name(name) == (key_variable(name) or None)
