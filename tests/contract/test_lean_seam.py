"""What we leave out of a fast-agent run: this fails when one of the places moves."""

import inspect
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fast_agent.agents.llm_agent import LlmAgent
from fast_agent.config import Settings
from fast_agent.llm.fastagent_llm import FastAgentLLM
from fast_agent.llm.request_param_resolution import merge_request_params
from fast_agent.llm.request_params import BatchRequestContext
from fast_agent.tools import codex_web_search
from fast_agent.types import RequestParams
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import SamplingMessage, TextContent, Tool, ToolChoice
from pydantic import BaseModel
from support.live import ask, client, running, write_project

from pallas.executors.fastagent import lean_seam
from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook

HANDLER: Any = print  # a copy of it is the same object
PARAMS = st.builds(
    lambda values, extra: RequestParams(**values, **extra),
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["a", "b"]),
            "max_tokens": st.integers(1, 9),
            "temperature": st.none() | st.floats(0, 1),
            "use_history": st.booleans(),
            "stop_sequences": st.lists(st.sampled_from("xy"), max_size=2),
            "metadata": st.dictionaries(st.sampled_from("ab"), st.just({"c": [1]}) | st.just({"d": 2})),
            "template_vars": st.dictionaries(st.sampled_from("ab"), st.integers()),
            "messages": st.just([SamplingMessage(role="user", content=TextContent(type="text", text="x"))]),
            "tools": st.just([Tool(name="t", input_schema={"type": "object"})]),
            "tool_choice": st.just(ToolChoice(mode="auto")),
            "batch_context": st.just(BatchRequestContext(row_number=1, identity="a")),
            "response_format": st.just({"type": "json_object"}) | st.just(RequestParams),
            "tool_execution_handler": st.just(HANDLER),
        },
    ),
    st.just({}) | st.just({"streaming_timeout": 3.0}),
)


@given(PARAMS, PARAMS)
def test_parameters_are_merged_as_fast_agent_merges_them(
    default: RequestParams, wanted: RequestParams
) -> None:
    merged: list[RequestParams] = []

    def merge(default: RequestParams, provided: RequestParams) -> RequestParams:
        merged.append(merge_request_params(default, provided))
        return merged[-1]

    llm: Any = SimpleNamespace(_merge_request_params=merge)
    lean_seam.merge_once(SimpleNamespace(llm=llm))
    before = wanted.model_copy(deep=True)
    ours = llm._merge_request_params(default, wanted)
    expected = merge_request_params(default, wanted)
    assert dict(ours) == dict(expected)
    assert ours.model_fields_set == expected.model_fields_set
    assert ours.tool_execution_handler is expected.tool_execution_handler
    models = (isinstance(each, BaseModel) for params in (default, wanted) for each in vars(params).values())
    assert len(merged) == any(models)
    # Merged once: from now on it is copied, and what is changed in a copy stays in it.
    again = llm._merge_request_params(default, ours.model_copy(update={"max_tokens": 99}))
    assert dict(again) == {**dict(expected), "max_tokens": 99}
    assert again.model_fields_set == ours.model_fields_set | {"max_tokens"}
    assert ours.model_copy() == ours is not ours.model_copy()
    again.temperature = 0.25
    assert ours.temperature == expected.temperature
    (ours.metadata or {})["new"] = 1
    assert dict(wanted) == dict(before)
    deep = ours.model_copy(deep=True)
    assert dict(deep) == dict(ours)


def test_ids_of_searches_are_random_ids_of_version_4() -> None:
    hooked = lean_seam.IDS_OF_SEARCHES.wrap(uuid.uuid4)
    made = {hooked() for _ in range(1000)}
    assert len(made) == 1000
    assert {each.version for each in made} == {4}
    assert "uuid4()" in inspect.getsource(codex_web_search)


def test_the_places_we_leave_out_stand_where_we_know_them() -> None:
    assert inspect.iscoroutinefunction(LlmAgent.show_assistant_message)
    assert list(inspect.signature(LlmAgent._display_trailing_user_messages).parameters) == [
        "self",
        "messages",
        "request_params",
    ]
    assert list(inspect.signature(FastAgentLLM._merge_request_params).parameters) == [
        "self",
        "default_params",
        "provided_params",
    ]


async def test_a_run_lays_out_no_panel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid_out: list[str] = []
    for name in ("show_assistant_message", "_display_trailing_user_messages"):
        monkeypatch.setattr(LlmAgent, name, lambda *_, name=name, **__: laid_out.append(name))
    write_project(tmp_path, {"one": None})
    async with running(tmp_path) as fleet, client(fleet, "one") as one:
        assert await ask(one, "hello") == "hello"
    assert laid_out == []


@pytest.mark.parametrize("hook", lean_seam.SKILLS_WITHOUT_SETTINGS, ids=lambda hook: hook.name)
def test_folders_of_skills_are_those_of_settings_that_were_read(
    hook: Hook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library_hooks.install(hook)
    lean = getattr(hook.owner, hook.attribute)
    stock = inspect.unwrap(lean)
    monkeypatch.chdir(tmp_path)
    for variable in ("FAST_AGENT_HOME", "HOME", "home", "FAST_AGENT_RUNTIME_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert lean(cwd=tmp_path) == stock(Settings(), cwd=tmp_path) == stock(cwd=tmp_path)
    (tmp_path / ".env").write_text("HOME=elsewhere\nFAST_AGENT_HOME=there\n")
    assert lean() == stock()
    assert lean(override="beside") == stock(override="beside")
    configured = Settings(home="configured")
    assert lean(configured) == stock(configured) != stock()


async def test_an_agent_starts_with_settings_that_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    build = Settings._settings_build_values

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        made.append("read")
        return build(self, *args, **kwargs)

    monkeypatch.setattr(Settings, "_settings_build_values", counted)
    write_project(tmp_path, {"one": None})
    async with running(tmp_path) as fleet, client(fleet, "one") as one:
        assert await ask(one, "hello") == "hello"
    assert made == ["read"]
