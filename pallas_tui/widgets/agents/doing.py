"""Start, stop, restart, reload: asked for from anywhere, with the question that belongs to it."""

from typing import Final

from textual.widget import Widget

from pallas.model import AgentSnapshot, Fault, FleetPort, Verb

from ...agents.under_way import UnderWay, can
from ...fleets import READ_ONLY
from ...text import count
from ..status import Ask

_NOT_NOW: Final[dict[Verb, str]] = {
    "start": "{} runs already; R restarts it.",
    "stop": "{} is stopped already.",
    "restart": "{} cannot be restarted now.",
    "reload": "{} can be reloaded once it runs; s starts it.",
}


def fleet_of(widget: Widget) -> FleetPort | None:
    """The fleet that the application runs, if it does."""
    fleet: FleetPort | None = getattr(widget.app, "fleet", None)
    return fleet


def refusal(fleet: FleetPort | None) -> str:
    """Why nothing can be changed, empty when it can."""
    if fleet is None:
        return "The fleet is not running."
    return "" if fleet.can_control else READ_ONLY


def control(widget: Widget, agent: AgentSnapshot, verb: Verb, under_way: UnderWay, now: float) -> None:
    """Have that done with the agent; what ends runs is asked about on the bottom line first."""
    fleet = fleet_of(widget)
    problem = refusal(fleet)
    if not problem and not can(verb, agent.state):
        problem = _NOT_NOW[verb].format(agent.name)
    if not problem and (doing := under_way.doing(agent.name)):
        problem = f"{agent.name} is {doing} already."
    if problem or fleet is None:
        widget.app.notify(problem, severity="warning", markup=False)
        return
    port = fleet

    def do() -> None:
        under_way.ask(agent.name, verb, now)
        try:
            port.control(agent.name, verb)
        except Fault as fault:
            under_way.forget(agent.name)
            widget.app.notify(fault.message, title=agent.name, severity="error", timeout=15, markup=False)

    if verb in ("stop", "restart"):
        runs = agent.runs_active
        lost = f" {count(runs, 'run is', 'runs are')} in flight and will be cancelled." if runs else ""
        widget.screen.query_one(Ask).ask(f"{verb.capitalize()} {agent.name}?{lost}", do)
    else:
        do()
