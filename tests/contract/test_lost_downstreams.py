"""How fast-agent says that a downstream went away, and the Fault that callers get of it."""

import inspect

from fast_agent.mcp import mcp_aggregator

from pallas.executors.fastagent.fastagent_faults import fault_of, servers_in
from pallas.model import FaultType


def test_a_downstream_that_went_while_it_was_connected_anew_is_named() -> None:
    error = RuntimeError("MCP server bridge offline - failed to reconnect")
    fault = fault_of(error)
    assert (fault.type, fault.retryable) == (FaultType.UPSTREAM, True)
    assert fault.message.startswith("downstream bridge cannot be reached")
    assert servers_in(error) == ("bridge",)


def test_another_runtime_error_tells_its_kind_alone() -> None:
    fault = fault_of(RuntimeError("something with a secret"))
    assert fault.type is FaultType.INTERNAL
    assert "secret" not in fault.message


def test_fast_agent_still_says_it_so() -> None:
    assert "offline - failed to reconnect" in inspect.getsource(mcp_aggregator)
