"""What the workbench asks fleets elsewhere: lists of tools that were not told, and runs that go on again."""

from types import SimpleNamespace
from typing import Any

import pytest
from mcp_types import Tool

from pallas.model import FleetSnapshot, FleetState, RunElsewhere, RunFinished, RunRecord
from pallas_tui.chat_client import KEY_META, TOOL
from pallas_tui.mcp_link import McpLink
from pallas_tui.runs.runs_elsewhere import RunsElsewhere


class Listing:
    """A server that does not tell its tools the first time."""

    def __init__(self) -> None:
        self.asked = 0

    async def list_tools(self, *, cursor: str | None = None) -> Any:
        self.asked += 1
        if self.asked == 1:
            raise TimeoutError
        tool = Tool(name=TOOL, input_schema={"type": "object"}, _meta={KEY_META: True})
        return SimpleNamespace(tools=[tool], next_cursor=None)


async def test_a_list_of_tools_that_was_not_told_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    listing, link = Listing(), McpLink("http://127.0.0.1:1/mcp")
    connection: Any = SimpleNamespace(client=listing, tools=None, promised=frozenset(), lost=False)

    async def opened() -> Any:
        return connection

    monkeypatch.setattr(link, "_open", opened)
    link._connection = connection
    assert await link.tools() == ()
    assert not connection.promised
    assert await link.promises(TOOL, KEY_META)
    assert [tool.name for tool in await link.tools()] == [TOOL]
    assert listing.asked == 2


async def test_the_end_of_a_run_that_was_asked_for_while_it_ran_is_told_though_it_had_ended_before() -> None:
    there: list[RunElsewhere] = []

    async def runs_elsewhere(known: str, here: str) -> tuple[RunElsewhere, ...]:
        return tuple(there)

    port = SimpleNamespace(runs_elsewhere=runs_elsewhere)
    elsewhere = RunsElsewhere(lambda: port)
    snapshot = FleetSnapshot("test", FleetState.RUNNING, 0.0, "", replica="here", replicas=2)

    def run(status: Any) -> RunElsewhere:
        return RunElsewhere(RunRecord("r1", "clerk", "anonymous", "", status=status), replica="there")

    there[:] = [run("error")]
    await elsewhere.look(snapshot, ["r1"])  # its fleet died, and nobody has gone on with it
    there[:] = [run("running")]
    await elsewhere.find("r1", snapshot)
    elsewhere.take()
    there[:] = [run("ok")]
    await elsewhere.look(snapshot)
    told = [event for event in elsewhere.take() if isinstance(event, RunFinished)]
    assert [event.outcome for event in told] == ["ok"]
