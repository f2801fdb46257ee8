"""What we leave out of a fast-agent run: this fails when one of the places moves."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fast_agent.agents.llm_agent import LlmAgent
from fast_agent.config import Settings
from fast_agent.llm.fastagent_llm import FastAgentLLM
from fast_agent.types import RequestParams
from support.live import ask, client, running, write_project

from pallas.executors.fastagent import lean_seam
from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook


def _llm() -> tuple[Any, list[RequestParams]]:
    merged: list[RequestParams] = []

    def merge(default: RequestParams, provided: RequestParams) -> RequestParams:
        merged.append(provided)
        return FastAgentLLM._merge_request_params(None, default, provided)  # type: ignore[arg-type]

    return SimpleNamespace(_merge_request_params=merge), merged


def test_parameters_are_merged_once_and_come_out_as_fast_agent_merges_them() -> None:
    default = RequestParams(model="m", max_tokens=7, metadata={"a": 1}, use_history=True)
    wanted = RequestParams(metadata={"b": 2}, max_iterations=3)
    llm, merges = _llm()
    expected = llm._merge_request_params(default, wanted)
    lean_seam.merge_once(SimpleNamespace(llm=llm))
    first = llm._merge_request_params(default, wanted)
    again = llm._merge_request_params(default, first.model_copy(update={"max_tokens": 9}))
    assert dict(first) == dict(expected)
    assert first.model_fields_set == expected.model_fields_set
    assert dict(again) == {**dict(expected), "max_tokens": 9}
    assert again is not first
    assert len(merges) == 2  # the expected one, and the first of ours


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
