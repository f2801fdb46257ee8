"""What is looked up of a handler before something is done with it: its schema, and where its code is."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from textual.widget import Widget

from pallas.model import AgentDetail, PayloadDetail, ToolDetail

from ...agents.knowledge import Knowledge, LookupFailed
from ..agents.doing import fleet_of

if TYPE_CHECKING:
    from ..agents import AgentsPane

SLOW: Final = 0.5
"""Seconds after which it is said that something is waited for."""


def open_send(widget: Widget, agent: str) -> None:
    """Write a message to an agent: by a form for its payload, or for its text where it takes that."""

    def opened(detail: AgentDetail, agents: "AgentsPane") -> None:
        from ...screens.send import SendScreen
        from ...screens.tool_form import ToolScreen

        if detail.payload is not None:
            memory = agents.knowledge.memory
            widget.app.push_screen(SendScreen(agent, detail.payload, memory, agents.glyphs))
            return
        tool = next((each for each in _own_tools(detail) if each.name == "send_message"), None)
        if tool is None:
            widget.app.notify(f"{agent} takes no message now.", severity="warning", markup=False)
        else:
            widget.app.push_screen(ToolScreen(agents, agent, "", tool))

    _look_up(widget, agent, opened)


def look_up_payload(widget: Widget, agent: str, then: Callable[[PayloadDetail], None]) -> None:
    """What an agent takes now, where it takes a payload."""

    def opened(detail: AgentDetail, agents: "AgentsPane") -> None:
        if detail.payload is not None:
            then(detail.payload)

    _look_up(widget, agent, opened)


def open_source(widget: Widget, agent: str) -> None:
    """Open the code of an agent in the user's editor."""

    def opened(detail: AgentDetail, agents: "AgentsPane") -> None:
        from ...agents.source_line import open_source as open_file

        if problem := open_file(widget.app, detail.defined or detail.source):
            widget.app.notify(problem, severity="warning", markup=False)

    _look_up(widget, agent, opened)


def _own_tools(detail: AgentDetail) -> tuple[ToolDetail, ...]:
    return next((each.tools for each in detail.servers if not each.server), ())


def _look_up(widget: Widget, agent: str, then: Callable[[AgentDetail, Any], None]) -> None:
    """Ask the fleet anew what the agent is like, since it may have been reloaded, and go on with that."""
    from ..agents import AgentsPane

    main = getattr(widget.app, "main", None)
    agents = next(iter(main.query(AgentsPane)), None) if main is not None else None
    if agents is None:
        return
    knowledge: Knowledge = agents.knowledge
    screen = widget.screen

    slow = widget.set_timer(SLOW, lambda: widget.app.notify(f"{agent} is asked what it takes.", markup=False))

    async def ask() -> None:
        try:
            detail = await knowledge.look_up(fleet_of(widget), agent)
        except LookupFailed as failed:
            widget.app.notify(f"{agent}: {failed}", severity="warning", markup=False)
            return
        finally:
            slow.stop()
        if widget.is_attached and screen.is_current:
            then(detail, agents)

    widget.run_worker(
        ask(), group="look up", exclusive=True, exit_on_error=False, description="look up agent"
    )
