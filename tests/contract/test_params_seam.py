"""Where parameters get into fast-agent's requests: this fails when one of the places moves."""

import inspect
from types import SimpleNamespace
from typing import Any

import pytest
from fast_agent.agents.tool_agent import ToolAgent
from fast_agent.agents.tool_runner import ToolRunner
from fast_agent.llm.model_factory import ModelFactory
from fast_agent.llm.provider.anthropic.llm_anthropic import AnthropicLLM
from fast_agent.llm.provider.openai.llm_generic import GenericLLM
from fast_agent.llm.provider.openai.llm_openai import OpenAILLM
from fast_agent.llm.provider.openai.responses import ResponsesLLM
from fast_agent.llm.provider_types import Provider
from fast_agent.types import PromptMessageExtended, RequestParams
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult, TextContent

from pallas.executors.fastagent.params_seam import family_of, hooks_for, prepare
from pallas.executors.fastagent.tool_allowlist import Allowed
from pallas.mcp_client import library_hooks


@pytest.mark.parametrize("provider", [each for each in Provider if each is not Provider.COPILOT])
def test_every_provider_has_the_function_of_its_family_as_we_know_it(provider: Provider) -> None:
    kind: Any = ModelFactory._load_provider_class(provider)
    prepare(SimpleNamespace(llm=object.__new__(kind)))
    for hook in hooks_for(kind):
        assert hook.name in library_hooks.installed(hook.owner, hook.attribute)


@pytest.mark.parametrize(
    ("kind", "family"),
    [(OpenAILLM, "openai"), (GenericLLM, "openai"), (AnthropicLLM, "anthropic"), (ResponsesLLM, "responses")],
)
def test_the_families_are_told_by_their_functions(kind: Any, family: str) -> None:
    llm: Any = kind.__new__(kind)
    assert family_of(llm) == family
    assert f"params-{family}" in {hook.name for hook in hooks_for(kind)}
    assert family_of(SimpleNamespace()) == "other"


def test_requests_have_the_fields_that_are_set() -> None:
    fields = RequestParams.model_fields
    assert {
        "temperature", "top_p", "top_k", "max_tokens", "stop_sequences", "presence_penalty",
        "frequency_penalty", "structured_schema", "sampling_tool_choice", "system_prompt",
    } <= set(fields)  # fmt: skip
    merged = RequestParams(temperature=1)
    merged.temperature = None  # what is cleared is set to None on the merged ones
    assert merged.temperature is None


def test_tools_are_given_to_generate_and_run_by_one_function() -> None:
    assert list(inspect.signature(ToolAgent.generate).parameters) == [
        "self", "messages", "request_params", "tools",
    ]  # fmt: skip
    assert list(inspect.signature(ToolAgent.run_tools).parameters) == ["self", "request", "request_params"]
    assert "self._agent.run_tools(" in inspect.getsource(ToolRunner)


class _Agent:
    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run_tools(self, request: Any, request_params: Any = None) -> PromptMessageExtended:
        self.ran += [call.params.name for call in request.tool_calls.values()]
        done = CallToolResult(content=[TextContent(type="text", text="done")])
        results = dict.fromkeys(request.tool_calls, done)
        return PromptMessageExtended(role="user", content=[], tool_results=results)


async def test_refused_calls_are_answered_in_their_place_and_the_agent_is_as_before() -> None:
    # AG-12
    agent = _Agent()
    calls = {
        number: CallToolRequest(method="tools/call", params=CallToolRequestParams(name=name))
        for number, name in (("1", "b__x"), ("2", "A__X"), ("3", "a__y"))
    }
    request = PromptMessageExtended(role="assistant", content=[], tool_calls=calls)
    with Allowed(["a/x"], ["a__x", "a__y", "b__x"]).enforced(agent):
        answered = await agent.run_tools(request)
    assert agent.ran == ["A__X"]  # fast-agent finds a tool in whatever case it is called
    assert "run_tools" not in vars(agent)
    assert answered.tool_results is not None
    assert [(each, bool(r.is_error)) for each, r in answered.tool_results.items()] == [
        ("1", True),
        ("2", False),
        ("3", True),
    ]
