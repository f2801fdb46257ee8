"""What each kind of provider is told, looked at in the finished request alone."""

from types import SimpleNamespace
from typing import Any

import pytest
from fast_agent.agents.workflow.agents_as_tools_agent import AgentsAsToolsAgent
from fast_agent.agents.workflow.router_agent import RouterAgent

from pallas.executors.fastagent.params_seam import is_compatible, requested_params
from pallas.executors.fastagent.provider_params import (
    NO_TOOL,
    edit_anthropic,
    edit_openai,
    edit_responses,
    instruction,
    never_without_tools,
    without,
)
from pallas.executors.fastagent.tool_allowlist import Allowed, find, find_one
from pallas.model import Fault, Params

_TOOLS: list[Any] = [{"type": "function", "function": {"name": "a__x"}}]
_EXTRA = {
    "metadata": {"user_id": "u"},
    "thinking": {"type": "disabled"},
    "inference_geo": "us",
    "user": "u",
    "min_p": 0.1,
    "top_k": 4,
    "reasoning": {"effort": "low"},
    "messages": [],
    "stream": False,
    "extra_headers": {"Authorization": "x"},
    "seed": 1,
    "user_x": None,
}


def _read(**given: Any) -> Params:
    return Params.read(given, strict=True)


def _openai(arguments: dict[str, Any], *, compatible: bool = False, **given: Any) -> dict[str, Any]:
    edit_openai(arguments, _read(**given), compatible=compatible)
    return arguments


def _anthropic(arguments: dict[str, Any], **given: Any) -> dict[str, Any]:
    edit_anthropic(arguments, _read(**given), None)
    return arguments


def test_extra_reaches_whoever_knows_it() -> None:
    # AG-10
    assert _openai({}, extra=_EXTRA)["extra_body"] == {"user": "u"}
    assert _openai({}, compatible=True, extra=_EXTRA)["extra_body"] == {
        "thinking": {"type": "disabled"},
        "user": "u",
        "min_p": 0.1,
        "top_k": 4,
        "reasoning": {"effort": "low"},
    }
    arguments: dict[str, Any] = {}
    edit_responses(arguments, _read(extra=_EXTRA), compatible=False)
    assert arguments["extra_body"] == {"user": "u", "reasoning": {"effort": "low"}}
    assert _anthropic({}, extra=_EXTRA)["extra_body"] == {
        "inference_geo": "us",
        "metadata": {"user_id": "u"},
        "thinking": {"type": "disabled"},
    }
    stored = {"store": True, "metadata": {"a": "b"}}
    assert _openai({}, extra=stored)["extra_body"] == stored


def test_extra_of_the_messages_api_is_added_to_what_is_there() -> None:
    extra = {"betas": ["b"], "output_config": {"effort": "low"}}
    there = {"betas": ["a"], "output_config": {"format": 1}}
    assert _anthropic(there, extra=extra) == {
        "betas": ["a", "b"],
        "output_config": {"format": 1, "effort": "low"},
    }


def test_what_is_cleared_is_taken_out_wherever_it_stands() -> None:
    # AG-8
    there = {"temperature": 1, "max_completion_tokens": 5, "messages": [], "extra_body": {"top_k": 1, "a": 2}}
    nothing: dict[str, Any] = dict.fromkeys(
        ("temperature", "max_tokens", "top_k", "messages", "extra", "tools_allowlist")
    )
    assert _openai(there, **nothing) == {"messages": [], "extra_body": {"a": 2}}
    assert _anthropic({"max_tokens": 9}, max_tokens=None)["max_tokens"] == 16_000  # it cannot do without


@pytest.mark.parametrize(
    ("wanted", "flat"),
    [
        ({"type": "text"}, {"type": "text"}),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {
                "type": "json_schema",
                "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}},
            },
            {"type": "json_schema", "name": "n", "strict": True, "schema": {"type": "object"}},
        ),
    ],
)
def test_each_form_of_answer_is_asked_for(wanted: dict[str, Any], flat: dict[str, Any]) -> None:
    # AG-11
    assert _openai({}, response_format=wanted)["response_format"] == wanted
    arguments: dict[str, Any] = {"text": {"verbosity": "low"}}
    edit_responses(arguments, _read(response_format=wanted), compatible=False)
    assert arguments["text"] == {"verbosity": "low", "format": flat}
    edit_responses(arguments, _read(response_format=None), compatible=False)
    assert arguments["text"] == {"verbosity": "low"}


def test_no_choice_is_sent_where_there_is_no_tool() -> None:
    # AG-11
    assert "tool_choice" not in _openai({"tools": []}, tool_choice="required")
    assert "tool_choice" not in _anthropic({}, tool_choice="required")
    assert _openai({"tools": _TOOLS}, tool_choice="required")["tool_choice"] == "required"


_THINKING = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 9216}


@pytest.mark.parametrize(
    ("given", "there", "thinks"),
    [
        ({"seed": 1}, {}, True),
        ({"max_tokens": 2048}, {}, True),
        ({"max_tokens": 1024}, {}, False),
        ({}, {"temperature": 0.5}, False),
        ({}, {"temperature": 1, "top_p": 0.97}, True),
        ({}, {"top_k": 5}, False),
        ({"tool_choice": "required"}, {}, False),
        ({"tool_choice": "auto"}, {}, True),
    ],
)
def test_a_model_thinks_only_where_the_messages_api_lets_it(
    given: dict[str, Any], there: dict[str, Any], thinks: bool
) -> None:
    tools = [{"name": "a__x"}]
    arguments = _anthropic({**_THINKING, "tools": tools, "extra_body": there}, **given)
    assert ("thinking" in arguments) is thinks
    assert arguments["max_tokens"] == given.get("max_tokens", 9216)


def test_a_conversation_that_used_tools_never_goes_without_one() -> None:
    # AG-12
    used = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]
    arguments: dict[str, Any] = {"messages": used}
    never_without_tools(arguments)
    assert arguments["tools"][0]["name"] == NO_TOOL
    assert arguments["tool_choice"] == {"type": "none"}
    plain: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}
    never_without_tools(plain)
    assert "tools" not in plain


def test_tools_of_the_provider_are_hidden_with_the_others() -> None:
    # AG-12
    search = {"type": "web_search_20250305", "name": "web_search"}
    arguments: dict[str, Any] = {"tools": [*_TOOLS, search]}
    without(arguments, Allowed(["a__x"], ["a__x"]).hides)
    assert arguments["tools"] == _TOOLS
    arguments = {"tools": [search]}
    without(arguments, Allowed(["web_search"], []).hides)
    assert arguments["tools"] == [search]
    without(arguments, Allowed([], []).hides)
    assert "tools" not in arguments


def test_tools_are_found_by_their_names() -> None:
    # AG-12
    names = ["a__x", "a__y", "b__x", "own"]
    for wanted, found in {
        "a__x": ("a__x",),
        "a/x": ("a__x",),
        "y": ("a__y",),
        "own": ("own",),
        "a__*": ("a__x", "a__y"),
        "*": tuple(names),
        "z": (),
        "a__z": (),
    }.items():
        assert find(wanted, names, "tools_allowlist") == found
    with pytest.raises(Fault, match="x is a tool of several servers; write a__x or b__x"):
        find("x", names, "tools_allowlist")
    with pytest.raises(Fault, match="tool_choice: no tool a__"):
        find_one("a__*", names, "tool_choice")


def test_the_instruction_is_replaced_and_added_to() -> None:
    # AG-13
    assert instruction("own", _read(), "openai", "rules") == "own"
    assert (
        instruction("own\n\nrules", _read(systemAppend="more"), "openai", "rules") == "own\n\nrules\n\nmore"
    )
    both = _read(systemOverride="other", systemAppend="more")
    assert instruction("own\n\nrules", both, "openai", "rules") == "other\n\nrules\n\nmore"
    assert instruction("own", _read(systemOverride=""), "openai") == ""
    assert "JSON" in (instruction(None, _read(response_format={"type": "json_object"}), "anthropic") or "")
    assert instruction(None, _read(response_format={"type": "json_object"}), "openai") is None


@pytest.mark.parametrize(
    ("provider", "base", "compatible"),
    [
        ("openai", None, False),
        ("openai", "https://api.openai.com/v1", False),
        ("openai", "https://eu.api.openai.com/v1", False),
        ("openai", "https://api.openai.com.evil.example/v1", True),
        ("openai", "http://127.0.0.1:8000/v1", True),
        ("responses", None, False),
        ("generic", "http://127.0.0.1:8000/v1", True),
        ("openrouter", None, True),
        ("groq", None, False),
        ("azure", "https://x.openai.azure.com", False),
    ],
)
def test_only_endpoints_that_are_nobodys_own_are_told_what_we_cannot_know(
    provider: str, base: str | None, compatible: bool
) -> None:
    # AG-10
    llm = SimpleNamespace(provider=SimpleNamespace(value=provider), _base_url=lambda: base)
    assert is_compatible(llm) is compatible


async def test_a_router_is_asked_nothing_of_this_and_an_agent_with_sub_agents_is() -> None:
    for kind, asked in ((RouterAgent, False), (AgentsAsToolsAgent, True)):
        agent: Any = object.__new__(kind)
        agent._llm = SimpleNamespace(instruction="own")
        wish = await requested_params(agent, _read(systemAppend="more"), None)
        with wish.held():
            assert agent._llm.instruction == ("own\n\nmore" if asked else "own")
