"""The places where we touch fast-agent beyond its public API: this fails when one of them moves."""

import asyncio
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from fast_agent.agents.llm_decorator import LlmDecorator
from fast_agent.config import MCPSettings
from fast_agent.core.logging.transport import AsyncEventBus
from mcp_types import CallToolRequest, CallToolRequestParams
from support.live import agent_module, ask, client, running, write_project
from support.recording import recording

from pallas import __version__
from pallas.config import load_project
from pallas.config.agent_choice import AgentCandidate
from pallas.executors.fastagent import log_seam, seam
from pallas.executors.fastagent.agent_loader import forget, load


@pytest.fixture
def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, {"one": agent_module("one", ("docs",))})
    project = load_project(tmp_path)
    yield load(project, project.agents["one"])
    forget(tmp_path)


def test_the_settings_we_silence_exist_and_take_our_values(fast: Any) -> None:
    settings = fast._settings
    assert fast.args.quiet is True
    assert settings.logger.progress_display is False
    assert settings.logger.type == "none"
    assert settings.session_history is False


async def test_a_harness_that_is_left_ends_its_own_instances_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, {"one": None})
    project = load_project(tmp_path)
    fast = load(project, project.agents["one"])
    assert callable(getattr(type(fast), "_dispose_managed_instances", None))
    ended: list[str] = []

    def told(session: Any, name: str) -> Any:
        agent = session.agent_app.get_agent("one")
        shutdown = agent.shutdown

        async def noted() -> None:
            ended.append(name)
            await shutdown()

        agent.shutdown = noted
        return agent

    async with fast.harness() as later:
        async with fast.harness() as first:
            told(await first.session("a"), "first")
            agent = told(await later.session("b"), "later")
        assert ended == ["first"]
        assert await agent.send("hello") == "hello"
    assert ended == ["first", "later"]
    forget(tmp_path)


async def test_harnesses_that_are_left_at_once_wait_for_no_log_of_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ("one", "two", "three", "four")
    write_project(tmp_path, dict.fromkeys(names))
    project = load_project(tmp_path)
    given_up: list[Any] = []
    monkeypatch.setattr(AsyncEventBus, "_discard_queued_events", staticmethod(given_up.append))
    leaving = asyncio.Barrier(len(names))

    async def entered_and_left(name: str) -> None:
        async with load(project, project.agents[name]).harness() as harness:
            await harness.session("a")
            await leaving.wait()

    async with asyncio.timeout(60):
        await asyncio.gather(*map(entered_and_left, names))
    assert given_up == []  # what fast-agent does with the events that it waited for in vain
    forget(tmp_path)


async def test_a_listener_of_log_events_that_hangs_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_seam, "_DRAIN_S", 0.01)
    waited: list[bool] = []

    class Bus:
        async def _drain_remaining_events(self) -> None:
            await asyncio.Event().wait()

    async def wait(self: Any, same_loop_task: bool) -> None:
        waited.append(same_loop_task)

    async with asyncio.timeout(60):
        await log_seam.DRAINED.wrap(wait)(Bus(), True)
    assert waited == [True]


def test_the_consoles_we_silence_exist() -> None:
    from fast_agent.ui import console

    seam.silence_consoles()
    assert console.console.quiet
    assert console.error_console.quiet
    assert console.server_console.quiet


def test_agents_and_their_servers_are_found(fast: Any) -> None:
    assert seam.candidates_of(fast, None) == (AgentCandidate("one"),)
    config = seam.config_of(fast, "one")
    assert config.servers == ["docs"]
    assert seam.all_servers(fast) == ("docs",)


def test_a_module_never_sees_our_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["pallas", "--port", "not-a-number"])
    write_project(tmp_path, {"argv": agent_module("argv")})
    project = load_project(tmp_path)
    assert load(project, project.agents["argv"]).name == "argv"
    assert sys.argv == ["pallas", "--port", "not-a-number"]
    forget(tmp_path)


def test_the_tool_execution_handler_has_the_methods_fast_agent_calls() -> None:
    from fast_agent.mcp.tool_execution_handler import ToolExecutionHandler

    from pallas.executors.fastagent.run_progress import RunProgress

    wanted = {
        name
        for name, member in inspect.getmembers(ToolExecutionHandler, inspect.isfunction)
        if not name.startswith("_")
    }
    assert wanted
    for name in wanted:
        theirs = list(inspect.signature(getattr(ToolExecutionHandler, name)).parameters)
        ours = list(inspect.signature(getattr(RunProgress, name)).parameters)
        assert ours == theirs, name


def test_request_params_take_what_we_pass() -> None:
    from fast_agent.types import RequestParams

    fields = RequestParams.model_fields
    assert {"tool_execution_handler", "emit_loop_progress", "max_iterations"} <= set(fields)


def test_messages_have_the_fields_that_kept_copies_rely_on() -> None:
    from fast_agent.types import PromptMessageExtended

    from pallas.executors.fastagent.message_conversion import native_copy, user_message

    hints = get_type_hints(PromptMessageExtended, include_extras=False)
    assert {"role", "content", "tool_calls", "tool_results", "stop_reason"} <= set(hints)
    kept = native_copy(user_message("hi"))
    assert kept.model_copy(deep=True) is kept
    changed = kept.model_copy(update={"role": "assistant"})
    assert changed is not kept
    assert kept.role == "user"
    assert kept.model_dump() == user_message("hi").model_dump()


def _call_of(name: str) -> CallToolRequest:
    return CallToolRequest(method="tools/call", params=CallToolRequestParams(name=name, arguments={}))


def test_a_kept_answer_is_without_what_was_measured_and_shares_its_set_of_fields() -> None:
    from fast_agent.constants import FAST_AGENT_TIMING, FAST_AGENT_USAGE, REASONING
    from fast_agent.mcp.helpers.content_helpers import text_content
    from fast_agent.types import PromptMessageExtended

    from pallas.executors.fastagent.message_conversion import FrozenMessage, native_copy

    blocks = {name: [text_content(name)] for name in (FAST_AGENT_TIMING, FAST_AGENT_USAGE, REASONING)}
    answer = PromptMessageExtended(role="assistant", content=[text_content("42")], channels=dict(blocks))
    kept, other = native_copy(answer), native_copy(answer.model_copy(update={"channels": None}))
    assert kept.channels == {REASONING: blocks[REASONING]} and answer.channels == blocks
    assert native_copy(answer.model_copy(update={"tool_calls": {}})).channels == kept.channels
    asks = answer.model_copy(update={"tool_calls": {"1": _call_of("tool")}})
    assert native_copy(asks).channels == blocks  # fast-agent sums these up where it shortens a history
    assert other.model_dump(exclude={"channels"}) == answer.model_dump(exclude={"channels"})
    assert kept.model_fields_set is other.model_fields_set == set(PromptMessageExtended.model_fields)
    assert kept.model_copy(update={"role": "user"}).model_fields_set is not kept.model_fields_set
    assert kept.content == answer.content
    assert FrozenMessage.model_validate_json(kept.model_dump_json(by_alias=True)) == kept


def test_a_models_back_off_can_be_shortened() -> None:
    from fast_agent.llm.fastagent_llm import FastAgentLLM
    from fast_agent.llm.internal.passthrough import PassthroughLLM

    llm = PassthroughLLM()
    assert isinstance(llm, FastAgentLLM)
    seam.retry_sooner(type("Agent", (), {"llm": llm}))
    assert llm._retry_wait_seconds(0) == seam.RETRY_SECONDS
    assert llm._retry_wait_seconds(1) == 2 * seam.RETRY_SECONDS


def test_the_sdk_asks_for_a_tools_schema_where_we_answer() -> None:
    from fastmcp import FastMCP

    server: FastMCP = FastMCP("x")
    assert server._mcp_server.get_tool_input_schema is None


async def test_a_history_that_is_loaded_is_the_agents_whole_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pallas.executors.fastagent.message_conversion import native_copy, user_message

    monkeypatch.chdir(tmp_path)
    write_project(tmp_path, {"kept": agent_module("kept")})
    project = load_project(tmp_path)
    fast_agent = load(project, project.agents["kept"])
    async with fast_agent.harness() as harness:
        agent: Any = (await harness.session("one")).agent_app.get_agent("kept")
        await agent.generate("said before")
        seam.load_history(agent, [native_copy(user_message("a")), native_copy(user_message("b"))])
        await agent.generate("now")
        said = [message.first_text() for message in agent.message_history]
        assert said[:3] == ["a", "b", "now"]
        assert len(said) == 4
        assert "before" not in repr(said)
    forget(tmp_path)


def test_loading_a_history_does_what_fast_agent_does() -> None:
    # Where their method grows another duty, ours must learn it too.
    from fast_agent.agents.llm_decorator import LlmDecorator
    from fast_agent.agents.mcp_agent import McpAgent

    ours = inspect.getsource(McpAgent.load_message_history)
    assert "self._codex_web_search.history_loaded(messages)" in ours
    assert len(ours.splitlines()) == 8
    assert len(inspect.getsource(LlmDecorator.load_message_history).splitlines()) == 12


@pytest.mark.slow
async def test_a_downstream_is_told_who_calls_without_reading_metadata_for_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fast_agent.mcp import client_callback_runtime

    read: list[str] = []
    monkeypatch.setattr(client_callback_runtime, "version", read.append)
    async with recording() as recorder:
        servers = {"rec": {"url": recorder.url}}
        write_project(tmp_path, {"one": agent_module("one", ("rec",))}, config={"mcp": {"servers": servers}})
        async with running(tmp_path) as fleet, client(fleet, "one") as connected:
            await ask(connected, '***CALL_TOOL rec__note {"text": "x"}')
        assert recorder.calls()
    assert read == []


async def test_an_agent_keeps_nothing_of_a_turn(tmp_path: Path) -> None:
    # PR-19
    write_project(tmp_path, {"one": None})
    async with running(tmp_path) as fleet, client(fleet, "one") as connected:
        executor: Any = fleet.agents[0].executor
        assert await ask(connected, "between us") == "between us"
        (instance,) = executor._pool._idle.values()
        assert instance.agent.last_turn_messages == []
        assert instance.agent.message_history == []


def test_downstreams_hear_that_pallas_calls(fast: Any) -> None:
    fast._settings.mcp = MCPSettings(servers={"docs": {"command": "docs"}})
    seam.introduce(fast)
    (server,) = fast._settings.mcp.servers.values()
    assert (server.implementation.name, server.implementation.version) == ("pallas", __version__)


def test_the_certificates_are_read_once_for_all_clients() -> None:
    import httpx2

    from pallas.executors.fastagent import quick_connect

    quick_connect.install()
    made = [quick_connect.default.create_ssl_context() for _ in range(2)]
    assert made[0] is made[1]
    assert quick_connect.default.create_ssl_context(verify=False) is not made[0]
    assert isinstance(httpx2.AsyncClient(timeout=60), httpx2.AsyncClient)


def test_both_ways_to_connect_quickly_are_in_place() -> None:
    from pallas.executors.fastagent import quick_connect
    from pallas.mcp_client import library_hooks

    quick_connect.install()
    for hook in (quick_connect.ONE_STORE, quick_connect.ONE_STORE_FOR_MODELS):
        assert hook.name in library_hooks.installed(hook.owner, hook.attribute)


def test_every_copy_of_an_agent_comes_from_one_function() -> None:
    places = {"spawn_detached_instance", "spawn_isolated_instance"}
    for name in places:
        assert "return await self._spawn_detached_instance(" in inspect.getsource(getattr(LlmDecorator, name))
    parameters = inspect.signature(LlmDecorator._spawn_detached_instance).parameters.values()
    assert {each.kind for each in parameters if each.name != "self"} == {inspect.Parameter.KEYWORD_ONLY}


async def test_copies_of_copies_are_prepared_once_each() -> None:
    class Agent:
        async def _spawn_detached_instance(self, *, name: str) -> "Agent":
            return Agent()

    prepared: list[Any] = []
    made_of: list[Any] = []

    @contextmanager
    def within(agent: Any) -> Iterator[None]:
        made_of.append(agent)
        yield

    def prepare(agent: Any) -> None:
        prepared.append(agent)
        seam.prepare_clones(agent, prepare, within)

    agent: Any = Agent()
    prepare(agent)
    prepare(agent)
    first = await agent._spawn_detached_instance(name="one")
    second = await first._spawn_detached_instance(name="two")
    assert prepared == [agent, agent, first, second]
    assert made_of == [agent, first]


def test_the_loop_runner_has_what_the_loop_guard_needs() -> None:
    from fast_agent.agents.tool_runner import ToolRunner, ToolRunnerHooks

    for name in ("request_params", "last_message", "iteration", "agent"):
        assert isinstance(getattr(ToolRunner, name), property), name
    assert set(inspect.signature(ToolRunnerHooks).parameters) == {
        "before_llm_call",
        "after_llm_call",
        "before_tool_call",
        "after_tool_call",
        "after_turn_complete",
    }
    # The cap is read from the run's parameters after each round of tools, and the history is completed.
    source = inspect.getsource(ToolRunner._advance_iteration)
    assert "self._request_params.max_iterations" in source
    assert "LlmStopReason.MAX_ITERATIONS" in source
    assert "_append_history_messages" in inspect.getsource(ToolRunner._ensure_tool_response_staged)
