"""Looks up a handler before an action on it: its schema, and where its code is."""

from collections.abc import Callable
from typing import Final

from textual.widget import Widget

from pallas.model import AgentDetail, PayloadDetail

from ...agents.agent_knowledge import Knowledge, LookupFailed
from ...agents.source_line import open_source as open_file
from ..agents import AgentsPane
from ..agents.agent_control import fleet_of

SLOW: Final = 0.5
"""Seconds after which the screen says that it waits."""


def look_up_payload(widget: Widget, agent: str, then: Callable[[PayloadDetail], None]) -> None:
    """Look up the payload that an agent takes now, and call ``then`` with it."""

    def opened(detail: AgentDetail, agents: AgentsPane) -> None:
        if detail.payload is not None:
            then(detail.payload)

    look_up(widget, agent, opened)


def open_source(widget: Widget, agent: str) -> None:
    """Open the code of an agent in the user's editor."""

    def opened(detail: AgentDetail, agents: AgentsPane) -> None:
        if problem := open_file(widget.app, detail.defined or detail.source):
            widget.app.notify(problem, severity="warning", markup=False)

    look_up(widget, agent, opened)


def look_up(widget: Widget, agent: str, then: Callable[[AgentDetail, AgentsPane], None]) -> None:
    """Get the agent's details again, since it may have been reloaded, and call ``then`` with them."""
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
        if widget.is_attached and screen.is_active:
            then(detail, agents)

    widget.run_worker(
        ask(), group="look up", exclusive=True, exit_on_error=False, description="look up agent"
    )
