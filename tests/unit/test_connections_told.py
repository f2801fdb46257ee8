"""How the connections of an agent are told: in words, in its health, on the screen, and to older peers."""

from pallas.fleet.agent_health import _with_connection
from pallas.health.probe import health_of
from pallas.model import AgentState, Downstream, HealthStatus, ProbeResult, ServerConnection, ServerDetail
from pallas.model.codec import decode, encode_fields
from pallas_tui.widgets.agents.agent_paragraphs import about_tool, plain
from pallas_tui.widgets.agents.tool_rows import ToolRow

WHY = "tool pay: its inputSchema is a text, not an object"
SHOP = Downstream("shop", "http", "http://shop/mcp", ProbeResult.OK)


def test_what_is_left_out_is_named_up_to_a_limit() -> None:
    found = ServerConnection(
        "shop", is_open=True, version="2026-07-28", tools=1, left_out=("a", "b"), left_out_count=9
    )
    assert str(found) == "connected, 2026-07-28, 1 tool, 9 left out: a; b; 7 more"


def test_things_left_out_do_not_degrade_and_no_usable_tool_does() -> None:
    connection = ServerConnection("shop", is_open=True, tools=2, left_out=(WHY,), left_out_count=1)
    one = _with_connection(SHOP, connection)
    assert WHY in one.detail
    assert health_of(AgentState.READY, [one]).status is HealthStatus.OK
    of_no_use = ServerConnection("shop", is_open=True, problem="announces tools and lists none")
    health = health_of(AgentState.READY, [_with_connection(SHOP, of_no_use)])
    assert (health.status, health.message) == (HealthStatus.DEGRADED, "shop announces tools and lists none")


def test_the_tools_screen_names_what_is_left_out() -> None:
    row = ToolRow(ServerDetail("shop", left_out=(WHY,)))
    assert WHY in plain(about_tool(row, "desk"))


def test_a_peer_of_before_says_nothing_of_it() -> None:
    server = encode_fields(ServerDetail("shop"))
    del server["left_out"]
    assert decode(ServerDetail, server) == ServerDetail("shop")
    downstream = encode_fields(SHOP)
    del downstream["problem"], downstream["connection"]
    assert decode(Downstream, downstream) == SHOP
