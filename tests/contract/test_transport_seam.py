"""Where our clients are told how much one event may hold: this fails when upstream moves it."""

import inspect

from fast_agent.mcp import client_gateway
from support.hooks import uninstall

from pallas.executors.fastagent import transport_seam
from pallas.mcp_client import library_hooks


def test_the_gateway_still_connects_through_the_function_we_wrap() -> None:
    # Resolved when it is called, as a global of the module: so a wrapper there is what it meets.
    assert "streamable_http_client(config.url, http_client=http_client)" in inspect.getsource(client_gateway)


def test_the_wrapped_function_takes_our_limit_and_leaves_a_given_one() -> None:
    uninstall(transport_seam.LARGER_EVENTS)
    theirs = inspect.signature(client_gateway.streamable_http_client).parameters
    assert tuple(theirs) == transport_seam.LARGER_EVENTS.parameters
    assert theirs["max_sse_event_size"].default == 1024 * 1024
    given: list[int | None] = []

    def connect(url: str, *, max_sse_event_size: int | None, **more: object) -> None:
        given.append(max_sse_event_size)

    wrapped = transport_seam.LARGER_EVENTS.wrap(connect)
    wrapped("http://x")
    wrapped("http://x", max_sse_event_size=5)
    assert given == [16 * 1024 * 1024, 5]
    library_hooks.install(transport_seam.LARGER_EVENTS)


def test_a_session_tells_when_it_ends_where_we_listen() -> None:
    from mcp.server.connection import Connection
    from mcp.server.session import ServerSession

    source = inspect.getsource(Connection)
    assert "exit_stack: AsyncExitStack" in source
    assert "state: dict[str, Any]" in source
    assert "self._connection = connection" in inspect.getsource(ServerSession.__init__)


def test_calls_to_downstreams_take_their_metadata_where_we_put_it() -> None:
    from fast_agent.mcp.mcp_aggregator import MCPAggregator

    from pallas.executors.fastagent.text_seam import asking_for_text

    metadata = MCPAggregator._server_method_kwargs
    with asking_for_text(True):
        assert metadata("call_tool", {"name": "x"}) == {
            "name": "x",
            "meta": {"local.pallas/streamText": True},
        }
    with asking_for_text(False):
        assert metadata("call_tool", {"name": "x"}) == {"name": "x"}


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
